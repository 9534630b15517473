import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { type Setting, settings } from '../../../infra/config/settings.ts';

const root = new URL('../../../', import.meta.url);
const variables = Object.values<Setting>(settings).map(({ variable }) => variable);

/**
 * Returns the text of the guide, the compose file and the tests, without the tests of `infra/config`, which only read
 * settings.
 */
function uses(): string {
  const readSources = (folder: string, end: string) =>
    readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith(end) && !/node_modules|^infra\/config\//.test(file))
      .map((file) => `${folder}${file}`);
  const files = [
    'docker-compose.yml',
    'infra/docker/Dockerfile',
    ...readSources('test/', '.ts'),
    ...readSources('docs/guide/', '.md'),
  ];
  return files.map((file) => readFileSync(new URL(file, root), 'utf8')).join('\n');
}

it('are at most 78, each with a variable of its own', () => {
  expect(variables.length).toBeLessThanOrEqual(78);
  expect(new Set(variables).size).toBe(variables.length);
});

it('are each used by a test, the guide or a compose file', () => {
  const text = uses();
  // Tests in the same process pass an object with the names of the settings.
  const unused = Object.entries<Setting>(settings).filter(
    ([name, { variable }]) => !new RegExp(`\\b(?:${variable}\\b|${name}(?::| }))`).test(text),
  );
  expect(unused.map(([, { variable }]) => variable)).toEqual([]);
});
