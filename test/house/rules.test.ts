import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { releaseVersion } from '../../api/server/release.ts';

const root = new URL('../../', import.meta.url);
const read = (file: string) => readFileSync(new URL(file, root), 'utf8');
const source = /^(schemas|infra|pipelines|api)\/.*\.(ts|mjs)$/;

/** Files that git tracks or would add, without build output and installed packages. */
const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
  cwd: root,
  encoding: 'utf8',
})
  .trim()
  .split('\n')
  .filter((file) => existsSync(new URL(file, root)));
const sources = files.filter((file) => source.test(file));

/** Returns the lines of `file` that match `pattern`, as `file:line`. */
function matchingLines(file: string, pattern: RegExp): string[] {
  return read(file)
    .split('\n')
    .flatMap((line, index) => (pattern.test(line) ? [`${file}:${index + 1}: ${line.trim()}`] : []));
}

const rules: readonly (readonly [rule: string, pattern: RegExp, broken: string])[] = [
  ['no source contains TODO or similar marks', /\b(TODO|FIXME|XXX|HACK)\b/, '// TODO: later'],
  ['no source disables a check', /biome-ignore|@ts-(ignore|nocheck|expect-error)|eslint-disable/, '// @ts-ignore'],
  ['imports include the file extension', /from '\.{1,2}\/[^']*(?<!\.(ts|mjs|json))'/, "import a from './a';"],
];

describe('house rules', () => {
  it.each(rules)('%s', (_rule, pattern, broken) => {
    expect(broken).toMatch(pattern);
    expect(sources.length).toBeGreaterThan(100);
    expect(sources.flatMap((file) => matchingLines(file, pattern))).toEqual([]);
  });

  it('files have specific names in kebab-case', () => {
    const named = files.filter((file) => /\.(ts|mjs)$/.test(file));
    expect(named.filter((file) => /(^|\/)(utils?|helpers?|common|manager)(\/|\.)/.test(file))).toEqual([]);
    expect(named.filter((file) => !/^[a-z0-9]+([-.][a-z0-9]+)*$/.test(file.split('/').at(-1) ?? ''))).toEqual([]);
  });

  it('the top level contains only files and the folders of the layout', () => {
    const folders = new Set(files.filter((file) => file.includes('/')).map((file) => file.split('/')[0]));
    const layout = ['.ci', '.github', 'api', 'bench', 'docs', 'infra', 'pipelines', 'schemas', 'test', 'web'];
    expect([...folders].filter((folder) => !layout.includes(String(folder)))).toEqual([]);
  });

  it('the release version equals that of package.json', () => {
    expect(releaseVersion).toBe(JSON.parse(read('package.json')).version);
    expect(JSON.parse(read('package-lock.json')).version).toBe(releaseVersion);
  });

  it('package versions are pinned', () => {
    const { dependencies, devDependencies, optionalDependencies } = JSON.parse(read('package.json'));
    const versions = Object.entries({ ...dependencies, ...devDependencies, ...optionalDependencies });
    expect(versions.filter(([, version]) => !/^(?:npm:@?[^@]+@)?\d/.test(String(version)))).toEqual([]);
  });

  it('decision records have unique numbers and are listed', () => {
    const records = files.filter((file) => /^docs\/decisions\/(?!README\.md$)/.test(file));
    const numbers = records.map((file) => file.slice(15, 19));
    expect(numbers.filter((number) => !/^\d{4}$/.test(number))).toEqual([]);
    expect(new Set(numbers).size).toBe(numbers.length);
    const list = read('docs/decisions/README.md');
    expect(records.filter((file) => !list.includes(`(${file.slice(15)})`))).toEqual([]);
  });

  it('relative links between pages resolve', () => {
    const broken = files
      .filter((file) => file.endsWith('.md'))
      .flatMap((file) =>
        [...read(file).matchAll(/\]\((?!https?:|#|mailto:)([^)#\s]+)[^)]*\)/g)]
          .filter(([, target]) => !existsSync(new URL(String(target), new URL(file, root))))
          .map(([, target]) => `${file}: ${target}`),
      );
    expect(broken).toEqual([]);
  });
});
