import { graphEnvironment } from '../../infra/config/graph-environment.ts';
import type { Config } from '../../infra/config/settings.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { noticesArrive } from '../../infra/postgres/notices-arrive.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { trustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { type GraphsFile, readGraphsFile } from '../../pipelines/agents/graphs/graphs-file.ts';
import { testedLibraries, untestedLibraries } from '../../pipelines/agents/graphs/untested-library.ts';
import { misfitVectors } from '../../pipelines/agents/store/misfit-vectors.ts';
import { type GraphIsolation, openGraphIsolation } from '../../pipelines/agents/workers/graph-isolation.ts';
import { openWorkerPool } from '../../pipelines/agents/workers/open-worker-pool.ts';
import { operatorOf } from '../../pipelines/tenants/operator.ts';
import { serverName } from '../agent-server/system/get-ok.ts';
import { agentServerAddress, checkPort } from './check-port.ts';

/** What was found out about a part: whether it is well, in words, and what to do where it is not. */
export type Finding = (up: boolean, part: string, words: string, remedy?: string) => void;

const answerWithinMs = 5_000;
const importWithinMs = 60_000;

/**
 * Looks at the file that names the graphs, imports each of them in a process of its own, as a start would, and tries the embedder of the
 * store with a text. Keeps nothing. Runs code of the project.
 */
export async function inspectGraphs(agentsFile: string, config: Config, logger: Logger, say: Finding): Promise<void> {
  let file: GraphsFile;
  try {
    file = await readGraphsFile(agentsFile);
  } catch (error) {
    return say(false, 'Agents file', wordsOf(error), 'Correct it, or set RUNLAKE_AGENTS_FILE to another one.');
  }
  say(true, 'Agents file', `${file.path} names ${file.graphs.length} graph${file.graphs.length === 1 ? '' : 's'}`);
  let isolation: GraphIsolation;
  try {
    isolation = await openGraphIsolation(file, config);
  } catch (error) {
    return say(false, 'Graph code', wordsOf(error), isRunlakeError(error) ? error.remedy : undefined);
  }
  say(true, 'Graph code', `has ${isolation.words}: see SECURITY.md`);
  try {
    await inspectProject(file, { config, logger, accounts: isolation.accounts }, say);
  } finally {
    await isolation.close();
  }
}

async function inspectProject(
  file: GraphsFile,
  {
    config,
    logger,
    accounts,
  }: {
    readonly config: Config;
    readonly logger: Logger;
    readonly accounts: GraphIsolation['accounts'];
  },
  say: Finding,
): Promise<void> {
  const untested = await untestedLibraries(file);
  for (const { path, version } of untested) {
    const remedy = `Install @langchain/langgraph ${testedLibraries} there; others may work, and nobody has tried.`;
    say(false, 'Library', `${path} is of version ${version}`, remedy);
  }
  if (untested.length === 0) say(true, 'Library', `@langchain/langgraph is ${testedLibraries} for every graph`);
  try {
    const pool = await openWorkerPool({
      file,
      workers: 0,
      runsPerWorker: 1,
      environment: graphEnvironment(),
      accounts,
      maxEventBytes: config.agentsMaxEventBytes,
      maxBufferedBytes: config.agentsWorkerBufferBytes,
      silentMs: config.agentsSilentMs,
      heapMegabytes: config.agentsWorkerHeapMegabytes,
      loadWithinMs: importWithinMs,
      logger,
    });
    try {
      for (const { graphId } of file.graphs) {
        const reason = pool.faults[graphId];
        if (reason === undefined) say(true, `Graph ${graphId}`, 'can be used');
        else
          say(false, `Graph ${graphId}`, reason, `Correct the module that ${file.path} names; the other graphs serve.`);
      }
      const { index } = file.store;
      if (index !== undefined) await inspectEmbedder(index, (texts) => pool.ask({ kind: 'embed', texts }), say);
    } finally {
      await pool.close(0);
    }
  } catch (error) {
    // Without its embedder no process of the file gets ready.
    const part = file.store.index === undefined ? 'Graphs' : 'Store index';
    say(false, part, wordsOf(error), 'Correct what store.index.embed names, or the module that ends its process.');
  }
}

async function inspectEmbedder(
  { embed, dims }: { readonly embed: string; readonly dims: number },
  ask: (texts: readonly string[]) => Promise<string>,
  say: Finding,
): Promise<void> {
  try {
    await ask(['what runlake doctor tries']);
    say(true, 'Store index', `${embed} makes vectors of ${dims} numbers`);
  } catch (error) {
    const remedy =
      'Let store.index.dims say how many numbers the embedder makes; check its model, key and address in `env` of the file.';
    say(false, 'Store index', `${embed}: ${wordsOf(error)}`, remedy);
  }
}

/** Whether the port could be had, where no agent server answers there already. */
export async function inspectAgentPort(config: Config, say: Finding): Promise<void> {
  const { agentsHost: host, agentsPort: port } = config;
  const url = `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
  // It is there whatever the `http` of a langgraph.json turns off, and open to everybody.
  const answers = () =>
    fetch(`${url}/ok`, { signal: AbortSignal.timeout(answerWithinMs) })
      .then(({ headers }) => headers.get('server') === serverName)
      .catch(() => false);
  if (await answers()) return say(true, 'Agent server', `answers at ${url}`);
  try {
    await checkPort(agentServerAddress(config));
    say(true, 'Agent port', `${host}:${port} is free`);
  } catch (error) {
    // One that was about to start when it was asked has taken its port since.
    if (await answers()) return say(true, 'Agent server', `answers at ${url}`);
    say(false, 'Agent port', wordsOf(error), 'Set RUNLAKE_AGENTS_PORT to another one, or end what listens there.');
  }
}

/** What the agent server needs of Postgres beyond its schema: notices, and vectors of the length that the file says. */
export async function inspectAgentDatabase(
  {
    database,
    databaseUrl,
    config,
    logger,
  }: {
    readonly database: Database;
    readonly databaseUrl: string;
    readonly config: Config & { readonly agentsFile: string };
    readonly logger: Logger;
  },
  say: Finding,
): Promise<void> {
  const at = { url: databaseUrl, authorities: trustedAuthorities(config), logger };
  if (await noticesArrive(database, at, answerWithinMs)) say(true, 'Notices', 'LISTEN and NOTIFY of Postgres work');
  else {
    const remedy =
      'Let RUNLAKE_DATABASE_URL lead to Postgres itself, or to a pooler that keeps sessions: one in transaction mode loses notices.';
    say(false, 'Notices', 'what NOTIFY tells is not heard: runs begin up to a second late', remedy);
  }
  const file = await readGraphsFile(config.agentsFile).catch(() => undefined);
  const dims = file?.store.index?.dims;
  if (dims === undefined) return;
  const deploymentId =
    config.agentsDeployment ?? (await operatorOf(database, config.agentsOrganization)).organizationId;
  const numbers = await misfitVectors(database, deploymentId, dims);
  if (numbers === undefined) return say(true, 'Stored vectors', `are of ${dims} numbers, as store.index.dims says`);
  const words = `some are of ${numbers} numbers, and store.index.dims says ${dims}: searches pass over their items`;
  say(false, 'Stored vectors', words, 'Put those items once more, or set the former embedder again.');
}

function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
