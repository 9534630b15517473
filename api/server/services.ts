import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Config } from '../../infra/config/settings.ts';
import type { DeadLetterQueue, EventLog } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { RateLimiter } from '../../infra/rate-limit/rate-limiter.ts';
import type { Sealer } from '../../infra/sealing/sealer.ts';
import type { TokenSigner } from '../../infra/signing/token-signer.ts';
import type { HealthCheck } from '../../infra/telemetry/telemetry-server.ts';
import type { PriceMaps } from '../../pipelines/costs/load-price-maps.ts';
import type { OwnReplicaFinder } from '../../pipelines/deployments/find-replica-url.ts';
import type { SourceReceiver } from '../../pipelines/deployments/receive-source.ts';
import type { SourceStore } from '../../pipelines/deployments/source-store.ts';
import type { DestinationDeps } from '../../pipelines/exports/destinations/destination.ts';
import type { ExportDeps } from '../../pipelines/exports/export-deps.ts';
import type { SentConfigs } from '../../pipelines/feedback/sent-config.ts';
import type { RecentFeedback } from '../../pipelines/feedback/write-feedback.ts';
import type { AcceptSingleDeps } from '../../pipelines/ingest/accept/accept-single.ts';
import type { OAuthDeps } from '../../pipelines/oauth/oauth-deps.ts';
import type { ProjectResolver } from '../../pipelines/projects/resolve-project.ts';
import type { ReadCounts } from '../../pipelines/prompts/read-counts.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import type { OidcClient } from '../../pipelines/tenants/oidc.ts';
import type { SignInLinks } from '../../pipelines/tenants/sign-in-links.ts';
import type { UsageLimits } from '../../pipelines/usage/usage-limits.ts';
import type { SystemCheck } from '../command-line/system-checks.ts';

/**
 * The services that operations call. The role (`api/command-line`) creates them once. If an area needs a new service,
 * add a field here.
 */
export interface Services {
  readonly config: Config;
  readonly database: Database;
  readonly clickhouse: ClickHouse;
  readonly authenticator: Authenticator;
  readonly rateLimiter: Omit<RateLimiter, 'close'>;
  /** Checks of the installation, the dead-letter queue and the event log, for the operator. */
  readonly system: {
    check(): Promise<SystemCheck[]>;
    openDeadLetters(): Promise<DeadLetterQueue>;
    readonly log: EventLog;
  };
  /** Sign-in through OpenID Connect, if it is configured. */
  readonly oidc: OidcClient | undefined;
  /** One-time sign-in links. They are valid only in this process. */
  readonly signInLinks: SignInLinks;
  readonly projects: ProjectResolver;
  /** Model prices that ingest uses. */
  readonly prices: PriceMaps;
  /** Feedback that this process accepted recently. */
  readonly recentFeedback: RecentFeedback;
  /** Stores configs that clients send with feedback. */
  readonly sentConfigs: SentConfigs;
  /** Connects to the destinations of bulk exports and checks them. */
  readonly destinations: DestinationDeps;
  /** Appends runs to the event log. */
  readonly accept: AcceptSingleDeps & { readonly log: Pick<EventLog, 'isExclusive'> };
  /** Signs links that give access to attachments without a key. */
  readonly attachmentSigner: TokenSigner;
  /** Encrypts the tokens of shared traces and datasets. */
  readonly shareSealer: Sealer;
  /** Counts reads of prompts in the background. */
  readonly promptReads: ReadCounts;
  /** Cached usage limits of workspaces. */
  readonly usageLimits: UsageLimits;
  /** Encrypts the secrets of workspaces. */
  readonly secretSealer: Sealer;
  /** OAuth providers, tokens of users and their authentication. */
  readonly oauth: OAuthDeps;
  /** Creates, reads and cancels bulk exports. Only processes with export workers execute them. */
  readonly exports: ExportDeps;
  /** Signs tickets, which replicas of deployments accept instead of a session. */
  readonly ticketSigner: TokenSigner;
  /** Signs links for uploads of sources. */
  readonly uploadSigner: TokenSigner;
  /** Stores uploaded sources of deployments. */
  readonly sourceStore: SourceStore;
  /** Receives the bodies of uploads of sources. */
  readonly sourceReceiver: SourceReceiver;
  /** Finds the replicas of deployments. */
  readonly replicas: OwnReplicaFinder;
  /** Health checks of the dependencies that this process needs to serve requests. `/ready` lists them. */
  readonly healthChecks: readonly HealthCheck[];
  /** Enqueues the deletion of the runs of a deleted project. */
  readonly enqueueProjectDeletion: (project: { workspaceId: string; projectId: string }) => Promise<void>;
  /** Enqueues the deletion of the data of a deleted workspace. */
  readonly enqueueWorkspaceDeletion: (workspaceId: string) => Promise<void>;
}
