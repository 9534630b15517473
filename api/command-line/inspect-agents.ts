import { buildGraphEnvironment } from '../../infra/config/graph-environment.ts';
import type { Config } from '../../infra/config/settings.ts';
import type { RunningInstance } from '../../infra/embedded/data-folder.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { checkNotifications } from '../../infra/postgres/inspect-database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { type GraphsFile, readGraphsFile } from '../../pipelines/agents/graphs/graphs-file.ts';
import { findUntestedLibraries, testedLibraryVersions } from '../../pipelines/agents/graphs/load-graph.ts';
import { findMismatchedVectorLength } from '../../pipelines/agents/store/write-items.ts';
import { type GraphIsolation, openGraphIsolation } from '../../pipelines/agents/workers/front/graph-isolation.ts';
import { openWorkerPool } from '../../pipelines/agents/workers/front/worker-pool.ts';
import { maxEventBytes } from '../../pipelines/agents/workers/messages.ts';
import { loadOperator } from '../../pipelines/tenants/operator.ts';

/** Reports the state of a part: whether it is usable, a description, and a remedy if it is unusable. */
export type PrintFinding = (up: boolean, part: string, words: string, remedy?: string) => void;

const timeoutMs = 5_000;
const importTimeoutMs = 60_000;

/**
 * Reads the agents file, imports each graph in a separate process (like startup), and sends a text to the embedder of
 * the store. Persists nothing, but executes graph code. The graph code of a running instance of another user is not
 * executed: it would get the rights of this user, and could fail for lack of those of the other one.
 */
export async function inspectGraphs(
  agentsFile: string,
  {
    config,
    logger,
    instance,
  }: {
    readonly config: Config;
    readonly logger: Logger;
    readonly instance: Pick<RunningInstance, 'uid' | 'graphCode'> | undefined;
  },
  printFinding: PrintFinding,
): Promise<void> {
  let file: GraphsFile;
  try {
    file = await readGraphsFile(agentsFile);
  } catch (error) {
    return printFinding(
      false,
      'Agents file',
      formatError(error),
      'Correct the file, or set RUNLAKE_AGENTS_FILE to another file.',
    );
  }
  printFinding(
    true,
    'Agents file',
    `${file.path} names ${file.graphs.length} graph${file.graphs.length === 1 ? '' : 's'}`,
  );
  if (instance?.graphCode !== undefined) printFinding(true, 'Graph code', `has ${instance.graphCode}: see SECURITY.md`);
  if (instance !== undefined && instance.uid !== process.getuid?.()) {
    return console.log(
      `note   Graphs: user ${instance.uid} executes them; run this command as that user to check them`,
    );
  }
  let isolation: GraphIsolation;
  try {
    isolation = await openGraphIsolation(file, config);
  } catch (error) {
    return printFinding(false, 'Graph code', formatError(error), isRunlakeError(error) ? error.remedy : undefined);
  }
  if (instance?.graphCode === undefined) printFinding(true, 'Graph code', `has ${isolation.words}: see SECURITY.md`);
  try {
    await inspectProject(file, { config, logger, accounts: isolation.accounts }, printFinding);
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
  printFinding: PrintFinding,
): Promise<void> {
  const untestedLibraries = await findUntestedLibraries(file);
  for (const { path, version } of untestedLibraries) {
    const remedy = `Install @langchain/langgraph ${testedLibraryVersions} there. Other versions are not tested.`;
    printFinding(false, 'Library', `${path} has version ${version}`, remedy);
  }
  if (untestedLibraries.length === 0)
    printFinding(true, 'Library', `@langchain/langgraph is ${testedLibraryVersions} for every graph`);
  try {
    const pool = await openWorkerPool({
      file,
      workers: 0,
      runsPerWorker: 1,
      environment: buildGraphEnvironment(),
      accounts,
      maxEventBytes,
      maxBufferedBytes: config.agentsWorkerBufferBytes,
      heartbeatTimeoutMs: config.agentsHeartbeatTimeoutMs,
      heapMegabytes: config.agentsWorkerHeapMegabytes,
      loadTimeoutMs: importTimeoutMs,
      logger,
    });
    try {
      for (const { graphId } of file.graphs) {
        const reason = pool.loadErrors.get(graphId);
        if (reason === undefined) printFinding(true, `Graph ${graphId}`, 'can be used');
        else
          printFinding(
            false,
            `Graph ${graphId}`,
            reason,
            `Correct the module that ${file.path} names. The other graphs are not affected.`,
          );
      }
      const { index } = file.store;
      if (index !== undefined)
        await inspectEmbedder(index, (texts) => pool.query({ kind: 'embed', texts }), printFinding);
    } finally {
      await pool.close(0);
    }
  } catch (error) {
    // A graph process does not become ready without its embedder.
    const part = file.store.index === undefined ? 'Graphs' : 'Store index';
    printFinding(
      false,
      part,
      formatError(error),
      'Correct the embedder in store.index.embed, or the module that terminates the process.',
    );
  }
}

async function inspectEmbedder(
  { embed, dims }: { readonly embed: string; readonly dims: number },
  ask: (texts: readonly string[]) => Promise<string>,
  printFinding: PrintFinding,
): Promise<void> {
  try {
    await ask(['test text of runlake doctor']);
    printFinding(true, 'Store index', `${embed} returns vectors with ${dims} dimensions`);
  } catch (error) {
    const remedy =
      'Set store.index.dims to the dimensions of the embedder; check its model, key and address in `env` of the file.';
    printFinding(false, 'Store index', `${embed}: ${formatError(error)}`, remedy);
  }
}

/**
 * Checks what the agent server needs from Postgres in addition to its schema: notifications, and stored vectors that
 * have the configured dimensions.
 */
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
  printFinding: PrintFinding,
): Promise<void> {
  const at = { url: databaseUrl, authorities: readTrustedAuthorities(config), logger };
  if (await checkNotifications(database, at, timeoutMs))
    printFinding(true, 'Notices', 'LISTEN and NOTIFY of Postgres work');
  else {
    const remedy =
      'Point RUNLAKE_DATABASE_URL to Postgres itself or to a pooler in session mode. Transaction mode loses notifications.';
    printFinding(false, 'Notices', 'NOTIFY does not arrive: runs start up to a second late', remedy);
  }
  const file = await readGraphsFile(config.agentsFile).catch(() => undefined);
  const dims = file?.store.index?.dims;
  if (dims === undefined) return;
  const deploymentId = config.agentsDeployment ?? (await loadOperator(database)).organizationId;
  const mismatchedDimensions = await findMismatchedVectorLength(database, deploymentId, dims);
  if (mismatchedDimensions === undefined)
    return printFinding(true, 'Stored vectors', `have ${dims} dimensions, as store.index.dims says`);
  const words = `some have ${mismatchedDimensions} dimensions, but store.index.dims is ${dims}: searches skip their items`;
  printFinding(false, 'Stored vectors', words, 'Put these items again, or configure the previous embedder.');
}

export function formatError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
