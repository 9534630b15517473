import { mkdir, writeFile } from 'node:fs/promises';
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

test('the copy that Runlake ships is tested', async () => {
  expect(await findUntestedLibraries(await readGraphsFile(projectFile('basic')))).toEqual([]);
});
