import { type DueClock, startDueClock } from '../due-clock.ts';
import { type FiringPorts, fireCrons, msToNextCron } from './fire-cron.ts';

/**
 * Fires crons when they are due. The caller wakes it on NOTIFY agent_crons. Several processes can do so at once: each
 * fire time still creates one run.
 */
export function startCrons(ports: FiringPorts): DueClock {
  return startDueClock(
    async () => {
      await fireCrons(ports);
      const nextMs = await msToNextCron(ports);
      // Crons that are still due have failed, or another process has locked them: retry in a second.
      return nextMs === 0 ? 1_000 : nextMs;
    },
    (err) => ports.logger.warn({ err }, 'due crons could not be read: retrying'),
  );
}
