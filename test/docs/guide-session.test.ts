import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseGuidePage } from './guide-page.ts';
import { GuideSession } from './guide-session.ts';

let session: GuideSession;
beforeAll(async () => {
  session = await GuideSession.open();
});
afterAll(() => session.close());

const run = async (...lines: string[]) => {
  for (const step of parseGuidePage(lines.join('\n')).steps) await session.run('page', step);
};

describe('a page that runs', () => {
  it('keeps exported variables, exported functions and the folder from one block to the next', async () => {
    const first = [
      '```sh',
      'export NAME=Ana; greet() { echo "Hi, $NAME"; }; export -f greet',
      'export TOP=$PWD; cd "$TMPDIR"',
      '```',
    ];
    await run(...first, '```sh', 'greet; basename "$PWD"; cd "$TOP"', '```', '```text', 'Hi, Ana', 'tmp', '```');
    await run('```ts', 'console.log(process.env.NAME);', '```', '```text', 'Ana', '```');
  });

  it('compares the output of each block of a program', async () => {
    const [first, second] = [
      ['```ts', "import assert from 'node:assert';", 'const one: number = 1;', 'console.log(one);', '```'],
      ['```ts', 'assert(one);', 'console.log(one + 1);', '```', '```text', '2', '```'],
    ];
    await run(...first, '```text', '1', '```', ...second);
    await expect(run(...first, '```text', '2', '```', ...second)).rejects.toThrow('page.md, line 2, prints:\n1');
  });

  it('has the packages of the checkout and the command runlake', async () => {
    await run('```ts', "import { Client } from 'langsmith';", 'console.log(typeof Client);', '```');
    await run('```sh', 'runlake --version', '```', '```text', '0.…', '```');
  });
});

describe('a page that is wrong', () => {
  it('fails with what the block wrote, at its line', async () => {
    await expect(run('# 1', '```sh', 'echo before; false; echo after', '```')).rejects.toThrow(
      /^page\.md, line 3: exit code 1\nbefore\n$/,
    );
    await expect(run('```ts', '', "throw new Error('no');", '```')).rejects.toThrow(/page-2\.ts:3\b[\s\S]*no/);
    await expect(run('```sh', 'false | cat', '```')).rejects.toThrow('exit code 1');
    await expect(run('```sh', 'echo "$NOT_SET"', '```')).rejects.toThrow('NOT_SET');
  });

  it('fails if it leaves a process running', async () => {
    await run('```sh', 'sleep 300 &', 'export SLEEP_PID=$!', '```');
    await expect(session.ended(500)).rejects.toThrow('sleep 300');
    await run('```sh', 'kill $SLEEP_PID', '```');
    await session.ended();
  });
});
