import type { Config } from '../../infra/config/settings.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { RecentFeedback } from './last-event.ts';
import type { ShowDeps } from './show-feedback.ts';

/** Dependencies of operations that change feedback. */
export interface FeedbackDeps extends ShowDeps {
  readonly recent: RecentFeedback;
  /** How long a change waits for feedback that another process may have just sent. */
  readonly waitMs: number;
  readonly log: Pick<EventLog, 'publish' | 'schemaId'>;
  readonly config: Pick<Config, 'maxRunBytes' | 'maxJsonDepth'>;
}
