import { graphEnvironment } from '../../infra/config/graph-environment.ts';
import type { Config } from '../../infra/config/settings.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { type HttpApp, openHttpApp } from '../../pipelines/agents/app/http-app.ts';
import type { GraphsFile } from '../../pipelines/agents/graphs/graphs-file.ts';
import type { GraphIsolation } from '../../pipelines/agents/workers/graph-isolation.ts';
import { agentServerUrl } from './check-port.ts';
import type { Ends } from './ends.ts';

/**
 * Starts the HTTP app of a langgraph.json in a separate process; undefined if the file has none. @throws GRAPHS_FILE_INVALID
 */
export async function openCustomApp(
  file: GraphsFile,
  {
    config,
    logger,
    accounts,
  }: { readonly config: Config; readonly logger: Logger; readonly accounts: GraphIsolation['accounts'] },
  ends: Ends,
): Promise<HttpApp | undefined> {
  if (file.app === undefined) return undefined;
  const app = await openHttpApp({
    file: { ...file, app: file.app },
    environment: graphEnvironment(),
    accounts,
    serverUrl: agentServerUrl(config),
    silentMs: config.agentsSilentMs,
    timeoutMs: config.agentsAppTimeoutMs,
    logger,
  });
  ends.add('custom app', () => app.close());
  return app;
}
