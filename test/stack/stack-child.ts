/**
 * The supervisor process of a stack. `make stack` starts it; it keeps running after that, and stops with all its parts
 * at SIGTERM.
 *
 * Invariant: while `state.json` exists and contains a live process, the parts that it lists as up have started. After
 * `make stack` or `make stack-down` has run on the folder, no part runs without a live supervisor.
 *
 * 1. Receive the plan over IPC. Take the folder's lock; kill and delete what a killed supervisor left.
 * 2. Start all parts concurrently. If one fails, or the parent exits before they are up, go to 5.
 * 3. Write the state, notify the parent, and close the channel.
 * 4. Wait. Each part has its own supervisor that restarts it; a part that ends permanently is recorded in the state.
 * 5. At SIGTERM: stop all parts, delete the data, release the lock, exit.
 *
 * If this process is killed: ClickHouse and Postgres exit, because the IPC channel of their parent closes. The next
 * `make stack-down` or `make stack` kills the others, which it finds by their recorded process ids and their marker.
 */
import { once } from 'node:events';
import { lockFolder } from '../../infra/embedded/data-folder.ts';
import { readProcessIdentity } from '../../infra/embedded/process-identity.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
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
    return answer({ failed: [describe(runlakeError('STACK_FOLDER_IN_USE', { folder, pid: lock }))] });
  const running: RunningPart[] = [];
  try {
    await clearStack(folder);
    const state: StackState = {
      pid: process.pid,
      process: readProcessIdentity(process.pid) ?? '',
      parts: { ...skipped },
    };
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
    // Keeps the process alive even if all parts were skipped.
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
