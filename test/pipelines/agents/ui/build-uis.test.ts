import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, expect, it } from 'vitest';
import { buildUisInBackground } from '../../../../pipelines/agents/ui/build-uis.ts';
import { folderForSuite } from '../../../folders.ts';
import { installLocked } from '../../../locked-packages.ts';
import { logger } from '../../../silent-logger.ts';

/** Limits of the process that builds UIs. `ui.test.ts` tests the UIs themselves. */

const folder = folderForSuite();
const libraries = fileURLToPath(new URL('../../../agents/libraries/', import.meta.url));

beforeAll(async () => {
  const installed = await installLocked(join(libraries, 'ui'), 'langgraph-ui');
  symlinkSync(join(installed, 'node_modules'), join(folder, 'node_modules'));
  mkdirSync(join(folder, 'ui'));
  const files = {
    'good.js': `export default { text: () => 'good' };`,
    'slow.js': `import './slow.css'; export default {};`,
    'slow.css': `@import "tailwindcss"; @plugin "./endless.cjs";`,
    'endless.cjs': `for (;;);`,
    'killed.js': `import './killed.css'; export default {};`,
    'killed.css': `@import "tailwindcss"; @plugin "./kill.cjs";`,
    'kill.cjs': `process.kill(process.pid, 'SIGKILL');`,
    'large.js': `export default { text: ${JSON.stringify('x'.repeat(17 * 1024 ** 2))} };`,
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, 'ui', name), text);
});

function build(names: readonly string[], limitMs = 60_000) {
  const ui = Object.fromEntries(names.map((name) => [name, `./ui/${name}.js`]));
  return buildUisInBackground({ file: { folder, env: {}, ui, uiConfig: {} }, environment: {}, limitMs, logger });
}

it.each([
  ['killed', 60_000, 'its process ended by SIGKILL'],
  ['slow', 3_000, 'it took longer than 3 s'],
  ['large', 60_000, 'its files have 178'],
])('gives up a UI that is %s, and builds the next one', async (name, limitMs, reason) => {
  const uis = build([name, 'good'], limitMs);
  await expect(uis.get(name)).rejects.toMatchObject({
    code: 'UI_UNUSABLE',
    parameters: { ui: name, reason: expect.stringContaining(reason) },
  });
  const { files } = await uis.get('good');
  expect([...files.keys()]).toEqual(['entrypoint.js']);
  await uis.stop();
});

it('stops at once, and builds no further UIs', async () => {
  const uis = build(['slow', 'good']);
  await uis.stop();
  await expect(uis.get('slow')).rejects.toMatchObject({ code: 'UI_UNUSABLE' });
  await expect(uis.get('good')).rejects.toMatchObject({ code: 'UI_UNUSABLE' });
});
