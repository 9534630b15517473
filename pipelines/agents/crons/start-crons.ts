import { type DueClock, startDueClock } from '../due-clock.ts';
import { type FiringDeps, fireCrons, msToNextCron } from './fire-cron.ts';

/**
 * Fires crons when they are due. The caller wakes it on NOTIFY agent_crons. Several processes can do so at once: each
 * fire time still creates one run.
 */
export function startCrons(deps: FiringDeps): DueClock {
  return startDueClock(
    async () => {
      await fireCrons(deps);
      const nextMs = await msToNextCron(deps);
      // Crons that are still due have failed, or another process has locked them: retry in a second.
      return nextMs === 0 ? 1_000 : nextMs;
    },
    (err) => deps.logger.warn({ err }, 'due crons could not be read: retrying'),
  );
}
