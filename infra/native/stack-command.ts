/** `make stack`, `make stack-down`, `make stack-status`. */
import { loadStackSettings, type StackSettings } from '../config/stack-settings.ts';
import { isRunlakeError } from '../errors/runlake-error.ts';
import { bringUp } from './bring-up.ts';
import { allParts } from './parts/all-parts.ts';
import { stackFiles } from './stack-folder.ts';
import { exportLines, inOrder, readStackState, type StackState } from './stack-state.ts';
import { takeDown } from './take-down.ts';

const say = (line: string) => void process.stdout.write(`${line}\n`);

const commands: Readonly<Record<string, (settings: StackSettings) => Promise<boolean>>> = {
  async up(settings) {
    const running = readStackState(settings.folder);
    if (running) {
      const isWell = await report(running);
      say(
        isWell ? 'The stack is up already.' : 'The stack is up, but not well. To start it anew: make stack-down stack',
      );
      if (isWell) showExports(settings, running);
      return isWell;
    }
    const state = await bringUp(settings, say);
    for (const [name, part] of inOrder(state)) {
      if (part.status === 'up')
        say(`  ${name.padEnd(11)}${Object.values(part.exports)[0] ?? part.values.endpoint ?? ''}`);
    }
    showExports(settings, state);
    return true;
  },
  async down({ folder }) {
    await takeDown(folder);
    say('The stack is down.');
    return true;
  },
  async status({ folder }) {
    const state = readStackState(folder);
    if (!state) say('The stack is not up.');
    return state !== undefined && (await report(state));
  },
};

/** One line a part. @returns whether each is well, or was skipped. */
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
  say(`\nTo point runlake at it: source ${stackFiles(folder).exports}\n\n${exportLines(state)}`);
}

const command = commands[process.argv[2] ?? ''];
try {
  if (!command) say(`One of: ${Object.keys(commands).join(', ')}`);
  process.exitCode = command && (await command(loadStackSettings())) ? 0 : 1;
} catch (error) {
  process.stderr.write(`${isRunlakeError(error) ? `${error.message}\n${error.remedy}` : String(error)}\n`);
  process.exitCode = 1;
}
