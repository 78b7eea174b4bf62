-- The failed authentications by tokens that are known: the first of each token is kept whatever else is refused, and no
-- second one that day.
CREATE INDEX events_failed ON events (bearer_id, at) WHERE action = 'authentication.failed' AND bearer_id IS NOT NULL;
