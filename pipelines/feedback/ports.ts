import type { Config } from '../../infra/config/settings.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { RecentFeedback } from './last-event.ts';
import type { ShowPorts } from './show-feedback.ts';

/** What changing feedback needs of the rest of the system. */
export interface FeedbackPorts extends ShowPorts {
  readonly recent: RecentFeedback;
  /** How long a change waits for feedback that may be on its way from another process. */
  readonly waitMs: number;
  readonly log: Pick<EventLog, 'publish' | 'schemaId'>;
  readonly config: Pick<Config, 'maxRunBytes' | 'maxJsonDepth'>;
}
