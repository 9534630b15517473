/**
 * Runs a program while a stack is up.
 *
 * Invariant: whatever ends this process but SIGKILL, the stack that it brought up is down before.
 *
 * 1. Bring the stack up. A signal meanwhile takes down what there is, and ends.
 * 2. Run the program in the foreground. A signal is handed on to it.
 * 3. Take the stack down, and answer the program's exit code.
 *
 * Where the stack does not come up the program runs all the same, to say what works without; its success does not count.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { StackSettings } from '../config/stack-settings.ts';
import { bringUp } from './bring-up.ts';
import { takeDown } from './take-down.ts';

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** As shells say that a signal ended a program. */
const endedBySignal = 128;

export async function runDuringStack(
  settings: StackSettings,
  [program = '', ...args]: readonly string[],
  hear: { readonly say: (line: string) => void; readonly sayFault: (error: unknown) => void },
): Promise<number> {
  let onSignal = (_signal: NodeJS.Signals) => {
    void takeDown(settings.folder).finally(() => process.exit(endedBySignal));
  };
  for (const signal of signals) process.on(signal, () => onSignal(signal));
  const isUp = await bringUp(settings, hear.say).then(
    () => true,
    (error: unknown) => {
      hear.sayFault(error);
      return false;
    },
  );
  const child = spawn(program, args, { stdio: 'inherit' });
  // Ctrl-C in a terminal reaches the program by itself.
  onSignal = (signal) => void (signal === 'SIGINT' || child.kill(signal));
  const code = await once(child, 'exit').then(([exitCode]) =>
    typeof exitCode === 'number' ? exitCode : endedBySignal,
  );
  await takeDown(settings.folder);
  return code === 0 && !isUp ? 1 : code;
}
