import { once } from 'node:events';
import { createServer } from 'node:http';
import { describe, expect, it, onTestFinished } from 'vitest';
import { forSuite } from '../for-suite.ts';
import { type GuideStep, parseGuidePage } from './guide-page.ts';
import { GuideSession } from './guide-session.ts';
import { guidePages, readGuidePage } from './run-guide.ts';

const session = forSuite(() => GuideSession.open());

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

describe('the block that starts Runlake', () => {
  const start = 'runlake all > runlake.log 2>&1 &';
  const findStarts = (page: string) =>
    readGuidePage(page).steps.filter(({ blocks }) => blocks[0]?.code.includes(start));

  it.each(['RUNLAKE_PORT', 'RUNLAKE_TOOLS_PORT'])('ends with the reason if another program has %s', async (name) => {
    const other = createServer((_, response) => response.end()).listen(Number(session.variable(name)), '127.0.0.1');
    await once(other, 'listening');
    onTestFinished(() => {
      other.close();
    });
    const run = session.run('README', findStarts('README')[0] as GuideStep);
    await expect(run).rejects.toThrow(new RegExp(`is in use\\.\\n.*, or set ${name}\\.`));
  });

  it('is the same on every page', () => {
    const blocks = guidePages.flatMap((page) =>
      findStarts(page).map(({ blocks: [block] }) => {
        const lines = `${block?.code}`.split('\n');
        const at = lines.findIndex((line) => line.endsWith(start));
        return lines
          .slice(at - 1, at + 3)
          .join('\n')
          .replace(/^(?:[A-Z_]+=\S+ )+/m, '');
      }),
    );
    expect(new Set(blocks)).toEqual(new Set([expect.stringContaining(`\n${start}\n`)]));
    expect(blocks.length).toBeGreaterThan(20);
  });
});
