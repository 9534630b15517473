import { OpenedOnce } from '../../infra/cache/opened-once.ts';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import { openRateLimiter } from '../../infra/rate-limit/rate-limiter.ts';
import { createTokenSigner } from '../../infra/signing/token-signer.ts';
import type { HealthCheck } from '../../infra/telemetry/telemetry-server.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { createPriceMaps } from '../../pipelines/costs/load-price-maps.ts';
import { createReplicaFinder } from '../../pipelines/deployments/find-replica-url.ts';
import { createSourceReceiver } from '../../pipelines/deployments/receive-source.ts';
import { createSourceStore } from '../../pipelines/deployments/source-store.ts';
import { createDestinationDeps } from '../../pipelines/exports/destinations/destination.ts';
import { SentConfigs } from '../../pipelines/feedback/sent-config.ts';
import { RecentFeedback } from '../../pipelines/feedback/write-feedback.ts';
import type { AcceptDeps } from '../../pipelines/ingest/accept/accept-drafts.ts';
import { RunLocations } from '../../pipelines/ingest/accept/run-locations.ts';
import { openOAuth } from '../../pipelines/oauth/oauth-deps.ts';
import { createProjectResolver } from '../../pipelines/projects/resolve-project.ts';
import { ReadCounts } from '../../pipelines/prompts/read-counts.ts';
import { locateRuns } from '../../pipelines/runs/locate-run.ts';
import { createShareSealer } from '../../pipelines/shares/share-tokens.ts';
import { createAuthenticator } from '../../pipelines/tenants/authenticate.ts';
import { openOidcClient } from '../../pipelines/tenants/oidc.ts';
import { createSecretSealer } from '../../pipelines/tenants/secrets.ts';
import { SignInLinks } from '../../pipelines/tenants/sign-in-links.ts';
import { UsageLimits } from '../../pipelines/usage/usage-limits.ts';
import type { Services } from '../server/services.ts';
import { createTicketSigner } from '../server/session-ticket.ts';
import { enqueueDeletions } from './enqueue-deletions.ts';
import { openDeadLetters } from './open-event-log.ts';
import type { RoleParts, StoreAddresses } from './open-stores.ts';
import type { ShutdownSteps } from './shutdown-steps.ts';

export interface MainApiDeps extends RoleParts {
  readonly addresses: StoreAddresses;
  /** Key that signs links. Must be the same on all processes that serve the API. */
  readonly secretKey: string;
  readonly healthChecks: readonly HealthCheck[];
  readonly jobs: Pick<Jobs, 'enqueue'>;
  readonly countRuns: AcceptDeps['count'];
}

/**
 * Creates the services of the main API from `parts`. Adds the authenticator and the ingest dependencies of this
 * process.
 */
export function createMainApiServices(parts: MainApiDeps, shutdown: ShutdownSteps): Services {
  const { config, logger, log, secretKey, healthChecks, jobs, countRuns } = parts;
  const { database } = parts.stores;
  const clickhouse = readOwnWrites(parts.stores.clickhouse, log);
  const deadLetters = new OpenedOnce(() => openDeadLetters({ config, logger, stores: parts.stores }, shutdown));
  const authenticator = createAuthenticator({ database, logger });
  shutdown.add('authenticator', () => authenticator.close());
  const rateLimiter = openRateLimiter({
    database,
    redisUrl: config.redisUrl,
    authorities: readTrustedAuthorities(config),
    perKey: config.rateLimitPerKey,
    perOrganization: config.rateLimitPerOrganization,
    logger,
  });
  shutdown.add('rate limits', () => rateLimiter.close());
  const promptReads = new ReadCounts(database, logger);
  shutdown.add('reads of prompts', () => promptReads.flush());
  const projects = createProjectResolver(database, config.maxProjects);
  const prices = createPriceMaps(database);
  const runLocations = new RunLocations((workspaceId, runIds) => locateRuns(clickhouse, workspaceId, runIds));
  const sourceStore = createSourceStore(config);
  shutdown.add('sources of deployments', () => sourceStore.close());
  const sentConfigs = new SentConfigs(database);
  const secretSealer = createSecretSealer(config, secretKey);
  const oauth = openOAuth(config, { database, secretSealer, logger });
  shutdown.add('connections to OAuth providers', async () => oauth.close());
  const oidc = openOidcClient(config);
  shutdown.add('connections to the OpenID Connect provider', async () => oidc?.close());
  return {
    config,
    database,
    clickhouse,
    authenticator,
    rateLimiter,
    system: {
      check: async () => (await import('./system-checks.ts')).checkSystem(parts),
      log,
      openDeadLetters: () => deadLetters.get(),
    },
    oidc,
    signInLinks: new SignInLinks(),
    projects,
    prices,
    attachmentSigner: createTokenSigner(secretKey, 'attachments'),
    shareSealer: createShareSealer(config, secretKey),
    promptReads,
    usageLimits: new UsageLimits({ ...parts.stores, logger }),
    secretSealer,
    oauth,
    recentFeedback: new RecentFeedback(),
    accept: {
      log,
      projects,
      prices,
      runLocations,
      config,
      count: countRuns,
      feedback: { clickhouse, database, sentConfigs },
    },
    sentConfigs,
    destinations: createDestinationDeps(config, database, secretKey),
    exports: { database, log, jobs, limits: config, logger },
    ticketSigner: createTicketSigner(secretKey),
    uploadSigner: createTokenSigner(secretKey, 'source uploads'),
    sourceStore,
    sourceReceiver: createSourceReceiver(config),
    replicas: createReplicaFinder(database),
    healthChecks,
    ...enqueueDeletions(jobs),
  };
}

/**
 * Returns a client whose queries see the events that their organisation has published in this process before, if the log
 * can wait for them: see {@link EventLog.whenStored}.
 */
function readOwnWrites(clickhouse: ClickHouse, log: Pick<EventLog, 'whenStored'>): ClickHouse {
  return {
    ...clickhouse,
    query: async (request) => {
      await log.whenStored();
      return clickhouse.query(request);
    },
    queryText: async (request) => {
      await log.whenStored();
      return clickhouse.queryText(request);
    },
    queryToFile: async (request) => {
      await log.whenStored();
      return clickhouse.queryToFile(request);
    },
  };
}
