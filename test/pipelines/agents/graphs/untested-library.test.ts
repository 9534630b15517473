import { execFileSync } from 'node:child_process';
import { mkdir, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { readGraphsFile } from '../../../../pipelines/agents/graphs/graphs-file.ts';
import { findUntestedLibraries } from '../../../../pipelines/agents/graphs/load-graph.ts';
import { projectFile } from '../../../agents/pool-under-test.ts';
import { folderForSuite } from '../../../folders.ts';

const folder = folderForSuite();
beforeAll(async () => {
  await writeFile(join(folder, 'langgraph.json'), JSON.stringify({ graphs: { a: './src/a.js', b: './src/b.js' } }));
});

test.each([
  ['0.4.9', false],
  ['1.0.0', true],
  ['1.3.9', true],
  ['1.10.2', true],
  ['2.0.0', false],
])('library version %s is tested: %s', async (version, tested) => {
  const path = join(folder, 'node_modules/@langchain/langgraph');
  await mkdir(path, { recursive: true });
  await writeFile(join(path, 'package.json'), JSON.stringify({ version }));
  const found = await findUntestedLibraries(await readGraphsFile(join(folder, 'langgraph.json')));
  expect(found).toEqual(tested ? [] : [{ path, version }]);
});

// A project of a deployment is untrusted, and a pipe would block a thread of the process for ever.
test.each<[what: string, create: (path: string) => unknown]>([
  ['a pipe', (path) => execFileSync('mkfifo', [path])],
  ['a device without an end', (path) => symlink('/dev/zero', path)],
  ['larger than a package.json is', (path) => writeFile(path, '{}').then(() => truncate(path, 2 ** 30))],
  ['not JSON', (path) => writeFile(path, 'version')],
])('ignores a library whose package.json is %s', async (_what, create) => {
  const path = join(folder, 'node_modules/@langchain/langgraph');
  await mkdir(path, { recursive: true });
  await rm(join(path, 'package.json'), { force: true });
  await create(join(path, 'package.json'));
  expect(await findUntestedLibraries(await readGraphsFile(join(folder, 'langgraph.json')))).toEqual([]);
});

test('the copy that Runlake ships is tested', async () => {
  expect(await findUntestedLibraries(await readGraphsFile(projectFile('basic')))).toEqual([]);
});
