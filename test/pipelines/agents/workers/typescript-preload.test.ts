import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { builtProgram } from '../../../built-program.ts';
import { folderForTest } from '../../../folders.ts';

const workers = new URL('../../pipelines/agents/workers/child/', pathToFileURL(builtProgram)).href;

test('a child process of a TypeScript project can run TypeScript', () => {
  const folder = folderForTest();
  const path = (name: string) => join(folder, name);
  writeFileSync(path('package.json'), '{ "type": "module" }');
  writeFileSync(path('said.ts'), 'enum Said { Hello = 7 }\nconsole.log(Said.Hello as number);');
  writeFileSync(
    path('starts.ts'),
    `import { fork } from 'node:child_process';
     fork(${JSON.stringify(path('said.ts'))}).on('exit', (code: number | null) => process.exit(code ?? 1));`,
  );
  const output = execFileSync(process.execPath, ['--import', `${workers}typescript-preload.js`, path('starts.ts')], {
    encoding: 'utf8',
  });
  expect(output).toBe('7\n');
});
