/**
 * The process that owns a stack. It is started by `make stack`, outlives it, and ends with all its parts at SIGTERM.
 *
 * Invariant: while `state.json` is there and names a living process, the parts that it lists as up were up; no part runs
 * without a living supervisor once `make stack` or `make stack-down` has run on the folder.
 *
 * 1. The plan comes over IPC. Take the folder's lock; end and remove what a killed supervisor left.
 * 2. Start all parts side by side. Where one fails, or the parent ends before they are up, go to 5.
 * 3. Write the state, tell the parent, and close the channel.
 * 4. Wait. A part that ends is started again by its own supervision; one that ends for good is written into the state.
 * 5. At SIGTERM: stop all parts, remove the data, give the lock back, end.
 *
 * Killed at any point: ClickHouse and Postgres end by themselves, because their parent's IPC closes; the others are ended by
 * the next `make stack-down` or `make stack`, which know them by what was written down at their start, and by their mark.
 */
import { once } from 'node:events';
import { lockFolder } from '../embedded/folder-lock.ts';
import { processIdentity } from '../embedded/process-identity.ts';
import { fault, isRunlakeError } from '../errors/runlake-error.ts';
import { createLogger } from '../telemetry/logger.ts';
import { allParts } from './parts/all-parts.ts';
import { clearStack, stackFiles } from './stack-folder.ts';
import type { StackAnswer, StackPlan } from './stack-plan.ts';
import { type StackState, writeStackState } from './stack-state.ts';
import { type RunningPart, startPart } from './start-part.ts';

const logger = createLogger('info', 'stack');
const ending = new AbortController();
process.on('SIGTERM', () => ending.abort());
process.on('SIGINT', () => {});
process.on('disconnect', onDisconnect);
function onDisconnect(): void {
  ending.abort();
}

const [plan] = (await once(process, 'message', { signal: ending.signal }).catch(() => [])) as [StackPlan?];
if (plan) await own(plan);
if (process.connected) process.disconnect();

async function own({ folder, ports, parts, skipped }: StackPlan): Promise<void> {
  const lock = lockFolder(folder);
  if (typeof lock === 'number')
    return answer({ failed: [describe(fault('STACK_FOLDER_IN_USE', { folder, pid: lock }))] });
  const running: RunningPart[] = [];
  try {
    await clearStack(folder);
    const state: StackState = { pid: process.pid, process: processIdentity(process.pid) ?? '', parts: { ...skipped } };
    const failures: string[] = [];
    const start = async ({ name, installation }: StackPlan['parts'][number]) => {
      const part = allParts[name];
      const options = { folder: stackFiles(folder).parts, installation, port: ports[name], logger };
      const started = await startPart(part, options);
      running.push(started);
      const { values } = started;
      state.parts[name] = { status: 'up', title: part.title, values, exports: { ...part.exports(values) } };
      await answer({ started: part.title });
      void started.exited.then(({ expected, reason }) => {
        if (expected || ending.signal.aborted) return;
        state.parts[name] = { status: 'ended', title: part.title, reason };
        writeStackState(folder, state);
      });
    };
    await Promise.all(parts.map((part) => start(part).catch((error: unknown) => void failures.push(describe(error)))));
    if (failures.length > 0) return await answer({ failed: failures });
    if (ending.signal.aborted) return;
    writeStackState(folder, state);
    await answer({ up: true });
    process.off('disconnect', onDisconnect);
    process.disconnect();
    logger.info({}, 'the stack is up');
    // Where every part was skipped nothing else would keep this process.
    const stay = setInterval(() => {}, 2 ** 30);
    if (!ending.signal.aborted) await once(ending.signal, 'abort');
    clearInterval(stay);
  } finally {
    await Promise.all(running.map((part) => part.stop()));
    await clearStack(folder);
    lock();
  }
}

function describe(error: unknown): string {
  if (isRunlakeError(error)) return `${error.message} ${error.remedy}`;
  return error instanceof Error ? error.message : String(error);
}

async function answer(message: StackAnswer): Promise<void> {
  await new Promise<void>((resolve) => {
    if (process.connected && process.send) process.send(message, () => resolve());
    else resolve();
  });
}
