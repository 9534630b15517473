import { cpus } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';

const lookMs = 500;
const quietShare = 0.1;
const maxLooks = 40;

/**
 * Resolves when the machine is nearly idle, or after 20 s. Deferred work of a server, such as writing state to a file
 * or merging parts, must not slow down the next measurement.
 */
export async function untilQuiet(): Promise<void> {
  for (let look = 0; look < maxLooks; look += 1) {
    const before = times();
    await pause(lookMs);
    const after = times();
    if ((after.busy - before.busy) / (after.all - before.all) < quietShare) return;
  }
}

function times(): { readonly busy: number; readonly all: number } {
  const sums = cpus().map(({ times: { user, nice, sys, irq, idle } }) => ({ busy: user + nice + sys + irq, idle }));
  const busy = sums.reduce((sum, each) => sum + each.busy, 0);
  return { busy, all: sums.reduce((sum, each) => sum + each.busy + each.idle, 0) };
}
