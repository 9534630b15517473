/** docs/guide: links, blocks and types of all pages. `chapters.test.ts` and `quickstarts.test.ts` run the pages. */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { folderForTest } from '../folders.ts';
import { isOutput, parseGuidePage, programText } from './guide-page.ts';
import { guidePages, readGuidePage } from './run-guide.ts';

const checkout = fileURLToPath(new URL('../../', import.meta.url));
const guide = join(checkout, 'docs', 'guide');

describe.each(guidePages)('%s', (page) => {
  it('has runnable blocks, and none that is of no known kind', () => {
    expect(readGuidePage(page).problems).toEqual([]);
  });
});

describe('links', () => {
  const linksOf = (page: string) =>
    [...readFileSync(join(guide, `${page}.md`), 'utf8').matchAll(/\]\(([^)#]+)(?:#[^)]*)?\)/g)].map(
      ([, link]) => `${link}`,
    );

  it('of the index lead to every page', () => {
    const others = guidePages.filter((page) => page !== 'README');
    expect(linksOf('README')).toEqual(expect.arrayContaining(others.map((page) => `${page}.md`)));
  });

  it.each(guidePages)('of %s lead to files', (page) => {
    const local = linksOf(page).filter((link) => !link.includes('://'));
    expect(local.filter((link) => !existsSync(join(guide, link)))).toEqual([]);
  });
});

describe('a page', () => {
  const listProblems = (...lines: string[]) => parseGuidePage(lines.join('\n')).problems;

  it.each([
    [['# Only prose'], ['the page has no runnable block']],
    [
      ['```js', '1', '```'],
      ["line 1: unknown language 'js'", 'the page has no runnable block'],
    ],
    [['```', 'words', '```', '```ts', '1', '```'], ["line 1: unknown language ''"]],
    [['```sh later', 'ls', '```', '```ts', '1', '```'], ["line 1: unknown words 'later'"]],
    [['```text', 'alone', '```', '```ts', '1', '```'], [expect.stringContaining('line 1: a text block must follow')]],
    [['```ts', '1', '```', '```text', '', '```', '```text', '', '```'], [expect.stringContaining('line 7: a text')]],
    [['```ts', '1', '```', '', 'Start it:', '```sh no-run', '```'], [expect.stringContaining('line 6: the paragraph')]],
    [
      ['```ts', '1'],
      ['line 1: the fence is not closed', 'the page has no runnable block'],
    ],
    [['- ```ts', '  1', '  ```', '```ts', '1', '```'], [expect.stringContaining('line 3: a fence must be')]],
  ])('%j has problems', (lines, problems) => {
    expect(listProblems(...lines)).toEqual(problems);
  });

  it('may leave a block out with a reason', () => {
    const reason = [
      'The tests do not run this block: it needs Docker.',
      '',
      '```sh no-run',
      'docker compose up',
      '```',
    ];
    expect(listProblems('```ts', '1', '```', '', ...reason)).toEqual([]);
  });

  it('makes one program of consecutive blocks, with the line numbers of the page', () => {
    const fences = ['# 1', '```ts', 'const one = 1;', '```', 'Then', '```ts', 'two();', '```', '```text', '2', '```'];
    const { steps } = parseGuidePage([...fences, '```sh', 'ls', '```', '```ts', '3', '```'].join('\n'));
    expect(steps.map(({ language, blocks }) => [language, blocks.length])).toEqual([
      ['ts', 2],
      ['sh', 1],
      ['ts', 1],
    ]);
    const lines = programText(steps[0] as (typeof steps)[number]).split('\n');
    expect([lines[2], lines[6]]).toEqual(['const one = 1;', 'two();']);
    expect(steps[0]?.blocks[1]?.output).toBe('2\n');
  });

  it('shows output, in which … stands for any text', () => {
    expect(isOutput('202\n', '202\n')).toBe(true);
    expect(isOutput('2022\n', '202\n')).toBe(false);
    expect(isOutput('id 1-2: stored\n', 'id …: stored\n')).toBe(true);
    expect(isOutput('a\nb\nc\n', 'a\n…\nc\n')).toBe(true);
    expect(isOutput('a\nc\n', 'a\n…\nc\n')).toBe(true);
    expect(isOutput('a\nb\n', 'a\n…\nc\n')).toBe(false);
    expect(isOutput('a\nb\n', 'a…\n')).toBe(false);
    expect(isOutput('', '\n')).toBe(true);
  });
});

it('TypeScript of all pages has no error of types', { timeout: 120_000 }, async () => {
  const folder = folderForTest();
  symlinkSync(join(checkout, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, 'package.json'), '{"type": "module"}');
  const options = { extends: join(checkout, 'tsconfig.json'), compilerOptions: { noUncheckedIndexedAccess: false } };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ ...options, include: ['*.ts'] }));
  for (const page of guidePages) {
    const programs = readGuidePage(page).steps.filter(({ language }) => language === 'ts');
    for (const step of programs)
      writeFileSync(join(folder, `${page}-${step.blocks[0]?.line}.ts`), `${programText(step)}export {};\n`);
  }
  const tsc = join(checkout, 'node_modules', 'typescript-7', 'bin', 'tsc');
  const { stdout } = await promisify(execFile)(process.execPath, [tsc, '-p', folder]).catch((error) => error);
  expect(stdout).toBe('');
});
