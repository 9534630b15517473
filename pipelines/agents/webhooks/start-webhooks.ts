import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { openGuardedAgents } from '../../../infra/network/guarded-agents.ts';
import { type DueClock, startDueClock } from '../due-clock.ts';
import {
  claimWebhooks,
  type DeliveryDeps,
  deleteOldWebhooks,
  deliverWebhook,
  msToNextWebhook,
} from './deliver-webhooks.ts';

export interface WebhookOptions extends Omit<DeliveryDeps, 'agents' | 'timeoutMs'> {
  /** The setting RUNLAKE_ALLOW_PRIVATE_ENDPOINTS. */
  readonly allowPrivate: boolean;
  /** Certificate authorities to trust in addition to those of Node, in PEM. */
  readonly authorities?: readonly string[] | undefined;
}

const maxInFlight = 16;
const timeoutMs = 10_000;

/**
 * Delivers webhooks when they are due. The caller wakes it on NOTIFY agent_webhooks. Several processes can do so at
 * once. `stop` claims no more webhooks, and resolves when those in flight are finished.
 */
export function startWebhooks({ allowPrivate, authorities, ...options }: WebhookOptions): DueClock {
  const agents = openGuardedAgents({
    allowPrivate,
    refuse: (host, { about }) => runlakeError('WEBHOOK_INVALID', { url: host, reason: `it resolves to ${about}` }),
    maxConnections: maxInFlight,
    authorities,
  });
  const deps: DeliveryDeps = { ...options, agents, timeoutMs };
  const { logger } = options;
  const inFlight = new Set<Promise<void>>();
  /** Whether more webhooks may be due than could be claimed. */
  let hasMore = false;
  const clock = startDueClock(
    async () => {
      await claimAndSend();
      await deleteOldWebhooks(deps);
      // If webhooks are due already, all slots are in use; the next delivery that finishes wakes the clock.
      return (await msToNextWebhook(deps)) || undefined;
    },
    (err) => logger.warn({ err }, 'due webhooks could not be read: retrying'),
  );

  async function claimAndSend(): Promise<void> {
    const freeSlots = maxInFlight - inFlight.size;
    const webhooks = freeSlots === 0 ? [] : await claimWebhooks(deps, freeSlots);
    hasMore = webhooks.length === freeSlots;
    for (const claimed of webhooks) {
      const delivery = deliverWebhook(deps, claimed)
        .catch((err) => logger.warn({ err, runId: claimed.run_id }, 'result of a webhook could not be recorded'))
        .finally(() => {
          inFlight.delete(delivery);
          if (hasMore) clock.wake();
        });
      inFlight.add(delivery);
    }
  }

  return {
    wake: clock.wake,
    async stop() {
      await clock.stop();
      await Promise.all(inFlight);
      agents.close();
    },
  };
}
