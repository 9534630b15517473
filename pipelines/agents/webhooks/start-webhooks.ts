import { fault } from '../../../infra/errors/runlake-error.ts';
import { openGuardedAgents } from '../../../infra/network/guarded-agents.ts';
import { type DueClock, startDueClock } from '../due-clock.ts';
import {
  type DeliveryPorts,
  deliverWebhook,
  forgetWebhooks,
  msToNextWebhook,
  takeWebhooks,
} from './deliver-webhooks.ts';

export interface WebhookOptions extends Omit<DeliveryPorts, 'agents' | 'timeoutMs'> {
  /** RUNLAKE_ALLOW_PRIVATE_ENDPOINTS. */
  readonly allowPrivate: boolean;
  /** Certificate authorities to trust beside Node's, in PEM. */
  readonly authorities?: readonly string[] | undefined;
}

const mostAtOnce = 16;
const timeoutMs = 10_000;

/**
 * Delivers webhooks when they are due; woken by NOTIFY agent_webhooks. Any number of processes may do so. `stop` takes no more, and
 * resolves once those under way are through.
 */
export function startWebhooks({ allowPrivate, authorities, ...options }: WebhookOptions): DueClock {
  const agents = openGuardedAgents({
    allowPrivate,
    refuse: (host, { about }) => fault('WEBHOOK_INVALID', { url: host, reason: `it leads to ${about}` }),
    maxConnections: mostAtOnce,
    authorities,
  });
  const ports: DeliveryPorts = { ...options, agents, timeoutMs };
  const { logger } = options;
  const underWay = new Set<Promise<void>>();
  /** Whether more may be due than there was room for. */
  let mayWait = false;
  const clock = startDueClock(
    async () => {
      await takeUp();
      await forgetWebhooks(ports);
      // Those that are due and wait for others to be through: that wakes us.
      return (await msToNextWebhook(ports)) || undefined;
    },
    (err) => logger.warn({ err }, 'webhooks could not be looked at: trying again'),
  );

  async function takeUp(): Promise<void> {
    const room = mostAtOnce - underWay.size;
    const webhooks = room === 0 ? [] : await takeWebhooks(ports, room);
    mayWait = webhooks.length === room;
    for (const taken of webhooks) {
      const delivery = deliverWebhook(ports, taken)
        .catch((err) => logger.warn({ err, runId: taken.run_id }, 'what came of a webhook could not be noted'))
        .finally(() => {
          underWay.delete(delivery);
          if (mayWait) clock.wake();
        });
      underWay.add(delivery);
    }
  }

  return {
    wake: clock.wake,
    async stop() {
      await clock.stop();
      await Promise.all(underWay);
      agents.close();
    },
  };
}
