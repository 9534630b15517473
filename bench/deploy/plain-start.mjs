/**
 * Starts the agent server for RUNLAKE_AGENTS_FILE on running stores, as `runlake agents` does, and prints `ready` when
 * `/ok` responds. It has an event log of its own, so that it needs no Kafka. Runs from the build, as the product does.
 */
import { createMainApiServices } from '../../dist/api/command-line/main-api-services.js';
import { openEventLog } from '../../dist/api/command-line/open-event-log.js';
import { openStores } from '../../dist/api/command-line/open-stores.js';
import { ShutdownSteps } from '../../dist/api/command-line/shutdown-steps.js';
import { startAgents } from '../../dist/api/command-line/start-agents.js';
import { loadConfig } from '../../dist/infra/config/load.js';
import { createLogger } from '../../dist/infra/telemetry/logger.js';

const { config } = loadConfig();
const logger = createLogger('error', 'agents');
const shutdown = new ShutdownSteps();
const { clickhouseUrl, databaseUrl } = config;
const stores = openStores({ clickhouseUrl, databaseUrl }, config, logger);
shutdown.add('stores', () => stores.close());
const { log } = await openEventLog({ config, logger, stores }, shutdown);
const secretKey = config.secretKey;
const jobs = { enqueue: async () => undefined };
const countRuns = () => undefined;
const services = createMainApiServices(
  { config, logger, stores, log, secretKey, healthChecks: [], jobs, countRuns },
  shutdown,
);
const { accept, authenticator, rateLimiter } = services;
const parts = { config, logger, databaseUrl, stores, log, secretKey, accept, authenticator, rateLimiter };
const { url } = await startAgents(parts, 'both', shutdown);
if ((await fetch(`${url}/ok`)).ok) console.log('ready');
process.once('SIGTERM', async () => {
  await shutdown.run(logger);
  process.exit(0);
});
