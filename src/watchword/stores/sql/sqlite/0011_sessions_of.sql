-- All sessions of an actor, with and without a token: counted when it is suspended, ended when it is offboarded.
CREATE INDEX sessions_of ON sessions (actor_urn);
