// An oidc-provider with what it keeps in a Map of this process: the package's own adapter
// in memory drops whatever is beyond a thousand.
import { Provider } from 'oidc-provider';

const kept = new Map();

class InMemory {
  constructor(model) { this.model = model; }

  async upsert(id, payload) { kept.set(`${this.model}:${id}`, payload); }

  async find(id) { return kept.get(`${this.model}:${id}`); }

  async destroy(id) { kept.delete(`${this.model}:${id}`); }

  async consume(id) { kept.get(`${this.model}:${id}`).consumed = Math.floor(Date.now() / 1000); }

  async findByUid() { return undefined; }

  async findByUserCode() { return undefined; }

  async revokeByGrantId() {}
}

const { BENCH_PORT: port, BENCH_SECRET: secret } = process.env;
const provider = new Provider(`http://127.0.0.1:${port}`, {
  adapter: InMemory,
  clients: [{
    client_id: 'bench',
    client_secret: secret,
    grant_types: ['client_credentials'],
    redirect_uris: [],
    response_types: [],
  }],
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    introspection: { enabled: true },
    revocation: { enabled: true },
  },
  ttl: { ClientCredentials: 86400 },
});
provider.listen(Number(port), '127.0.0.1');
