import type { Config } from '../../infra/config/settings.ts';
import { type Role, servesAgents } from './role.ts';

export type LoadedParts = Awaited<ReturnType<typeof loadParts>>;

/** Loads only the code of the role's parts: loading everything adds a second to each start. */
export async function loadParts(role: Role, config: Config) {
  const all = role === 'all';
  const answersMain = all || role === 'api';
  const runsGraphs = servesAgents(role, config);
  const [mainApi, storing, exporting, agents, answering] = await Promise.all([
    answersMain ? loadMainApi() : undefined,
    all || role === 'ingest' ? loadStoring() : undefined,
    all || role === 'exports' ? import('./start-exports.ts') : undefined,
    runsGraphs ? import('./start-agents.ts') : undefined,
    answersMain || runsGraphs ? import('./answering-services.ts') : undefined,
  ]);
  return { mainApi, storing, exporting, agents, answering };
}

async function loadMainApi() {
  const [{ listenHttp }, { operations }] = await Promise.all([
    import('./serve-http.ts'),
    import('../main/operations.ts'),
  ]);
  return { listenHttp, operations };
}

async function loadStoring() {
  const [{ startStoring }, { startWorkers }] = await Promise.all([
    import('./start-storing.ts'),
    import('./start-workers.ts'),
  ]);
  return { startStoring, startWorkers };
}
