import { type DueClock, startDueClock } from '../due-clock.ts';
import { type FiringPorts, fireCrons, msToNextCron } from './fire-cron.ts';

/**
 * Fires crons when they are due; woken by NOTIFY agent_crons. Any number of processes may do so: each time of a cron is one run.
 */
export function startCrons(ports: FiringPorts): DueClock {
  return startDueClock(
    async () => {
      await fireCrons(ports);
      const nextMs = await msToNextCron(ports);
      // Those that are due still have failed, or are in the hands of another process.
      return nextMs === 0 ? 1_000 : nextMs;
    },
    (err) => ports.logger.warn({ err }, 'crons could not be looked at: trying again'),
  );
}
