/** Implements `make stack`, `make stack-down`, `make stack-status`, and the stack of `make test`. */
import { spawnSync } from 'node:child_process';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { bringUp } from './bring-up.ts';
import { allParts } from './parts/all-parts.ts';
import { runDuringStack } from './run-during-stack.ts';
import { stackFiles } from './stack-folder.ts';
import { loadStackSettings, type StackSettings } from './stack-settings.ts';
import { formatExportLines, inOrder, readStackState, type StackState } from './stack-state.ts';
import { takeDown } from './take-down.ts';

const say = (line: string) => void process.stdout.write(`${line}\n`);
const sayError = (error: unknown) => {
  const text = isRunlakeError(error) ? `${error.message}\n${error.remedy}` : String(error);
  process.stderr.write(`${text}\n`);
};

/** Each command returns its exit code. */
const commands: Readonly<Record<string, (settings: StackSettings, args: readonly string[]) => Promise<number>>> = {
  async up(settings) {
    const running = readStackState(settings.folder);
    if (running) {
      const isWell = await report(running);
      say(isWell ? 'The stack is already up.' : 'The stack is up, but unhealthy. To restart it: make stack-down stack');
      if (isWell) showExports(settings, running);
      return isWell ? 0 : 1;
    }
    const state = await bringUp(settings, say);
    for (const [name, part] of inOrder(state)) {
      const address =
        part.status === 'up' ? (part.values.endpoint ?? part.values.url ?? part.values.brokers) : undefined;
      say(`  ${name.padEnd(11)}${address ?? part.status}`);
    }
    showExports(settings, state);
    return 0;
  },

  async down({ folder }) {
    await takeDown(folder);
    say('The stack is down.');
    return 0;
  },

  async status({ folder }) {
    const state = readStackState(folder);
    if (!state) say('The stack is not up.');
    return state !== undefined && (await report(state)) ? 0 : 1;
  },

  /**
   * Runs a program in the foreground, and prints nothing after it. A stack that is already running is used and left
   * running.
   */
  async during(settings, [program = '', ...args]) {
    const isUp = readStackState(settings.folder) !== undefined;
    if (!isUp) return runDuringStack(settings, [program, ...args], { say, sayError });
    return spawnSync(program, args, { stdio: 'inherit' }).status ?? 1;
  },
};

/** Prints one line for each part. @returns whether all parts are ready or skipped. */
async function report(state: StackState): Promise<boolean> {
  const answers = await Promise.all(
    inOrder(state).map(async ([name, part]) => ({
      part,
      word: part.status === 'up' ? await allParts[name].check(part.values) : `${part.status}: ${part.reason}`,
    })),
  );
  for (const { part, word } of answers) say(`  ${part.title.padEnd(34)}${word}`);
  return answers.every(({ part, word }) => word === 'ready' || part.status === 'skipped');
}

function showExports({ folder }: StackSettings, state: StackState): void {
  say(`\nTo use it with runlake: source ${stackFiles(folder).exports}\n\n${formatExportLines(state)}`);
}

const [, , name = '', ...args] = process.argv;
const command = commands[name];
try {
  if (!command) say(`One of: ${Object.keys(commands).join(', ')}`);
  process.exitCode = command ? await command(loadStackSettings(), args) : 1;
} catch (error) {
  sayError(error);
  process.exitCode = 1;
}
