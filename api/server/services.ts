import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import type { Config } from '../../infra/config/settings.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { RateLimiter } from '../../infra/rate-limit/rate-limiter.ts';
import type { TokenSigner } from '../../infra/signing/token-signer.ts';
import type { HealthCheck } from '../../infra/telemetry/health-check.ts';
import type { DestinationPorts } from '../../pipelines/exports/destinations/destination-ports.ts';
import type { ExportPorts } from '../../pipelines/exports/export-ports.ts';
import type { RecentFeedback } from '../../pipelines/feedback/last-event.ts';
import type { AcceptPorts } from '../../pipelines/ingest/accept/accept-drafts.ts';
import type { ProjectResolver } from '../../pipelines/projects/resolve-project.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import type { ReadUsageCounts } from '../../pipelines/usage/usage-counts.ts';

/**
 * Everything that operations call, filled once by the wiring of a role (`api/command-line`). An area that needs something new
 * adds a field here and nothing else.
 */
export interface Services {
  readonly config: Config;
  readonly database: Database;
  readonly warehouse: Warehouse;
  readonly authenticator: Authenticator;
  /** Where a rate limit is set. */
  readonly rateLimiter?: Pick<RateLimiter, 'take'> | undefined;
  readonly projects: ProjectResolver;
  /** Counts of usage reports; keeps those that do not change. */
  readonly usageCounts: ReadUsageCounts;
  /** Feedback that this process sent lately. */
  readonly recentFeedback: RecentFeedback;
  /** Reaches and checks the destinations of bulk exports. */
  readonly destinations: DestinationPorts;
  /** Takes runs to the event log. */
  readonly accept: AcceptPorts;
  /** Signs the links under which attachments can be read without a key. */
  readonly attachmentSigner: TokenSigner;
  /** Opens the links under which feedback can be left without a key. */
  readonly feedbackSigner: TokenSigner;
  /** Makes, reads and cancels bulk exports; the work is done by whoever has the workers. */
  readonly exports: ExportPorts;
  /** Parts that have to be up for this process to serve; named in `/ready`. */
  readonly healthChecks: readonly HealthCheck[];
  /** Hands a deleted project to the worker that deletes its runs. */
  readonly enqueueProjectDeletion: (project: { workspaceId: string; projectId: string }) => Promise<void>;
  /** Queues the deletion of the data of a deleted workspace. */
  readonly enqueueWorkspaceDeletion: (workspaceId: string) => Promise<void>;
}
