/**
 * Runs a program while a stack is up.
 *
 * Invariant: except after SIGKILL, the stack is stopped before this process exits.
 *
 * 1. Start the stack. A signal during the start stops it and exits.
 * 2. Run the program in the foreground. Signals are forwarded to it.
 * 3. Stop the stack, and return the program's exit code.
 *
 * If the stack does not start, the program still runs, to show what works without it; its success is then reported as a
 * failure.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { bringUp } from './bring-up.ts';
import type { StackSettings } from './stack-settings.ts';
import { takeDown } from './take-down.ts';

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Exit code if a signal ended the program, as in shells. */
const signalExitCode = 128;

export async function runDuringStack(
  settings: StackSettings,
  [program = '', ...args]: readonly string[],
  output: { readonly say: (line: string) => void; readonly sayError: (error: unknown) => void },
): Promise<number> {
  let onSignal = (_signal: NodeJS.Signals) => {
    void takeDown(settings.folder).finally(() => process.exit(signalExitCode));
  };
  for (const signal of signals) process.on(signal, () => onSignal(signal));
  const isUp = await bringUp(settings, output.say).then(
    () => true,
    (error: unknown) => {
      output.sayError(error);
      return false;
    },
  );
  const child = spawn(program, args, { stdio: 'inherit' });
  // The terminal sends Ctrl-C to the program directly.
  onSignal = (signal) => void (signal === 'SIGINT' || child.kill(signal));
  // A program that cannot be started emits an error instead.
  const code = await once(child, 'exit')
    .then(([exitCode]) => (typeof exitCode === 'number' ? exitCode : signalExitCode))
    .finally(() => takeDown(settings.folder));
  return code === 0 && !isUp ? 1 : code;
}
