import { afterEach, expect, test, vi } from 'vitest';
import { isCi, isLinuxRoot, skipWithout } from './prerequisites.ts';

afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

test.each([
  [undefined, false],
  ['', false],
  ['false', false],
  ['0', false],
  ['true', true],
  ['TRUE', true],
  [' 1 ', true],
  ['yes', true],
  ['on', true],
])('CI=%o: %o', (CI, expected) => {
  expect(isCi({ CI })).toBe(expected);
});

const users: readonly [what: string, platform: NodeJS.Platform, uid: number, ci: string, outcome: string | boolean][] =
  [
    ['root on Linux', 'linux', 0, '1', true],
    ['another user', 'linux', 1_000, '', 'skipped: a disk requires root'],
    ['another user in CI', 'linux', 1_000, '1', 'skipped: a disk requires root'],
    ['another system in CI', 'darwin', 0, '1', 'skipped: a disk requires Linux'],
  ];

test.each(users)('a test that needs root on Linux, as %s', (_, platform, uid, ci, outcome) => {
  vi.stubEnv('CI', ci);
  vi.spyOn(process, 'platform', 'get').mockReturnValue(platform);
  vi.spyOn(process as { getuid(): number }, 'getuid').mockReturnValue(uid);
  let printed: string | undefined;
  vi.spyOn(console, 'warn').mockImplementation((line) => {
    printed = line;
  });
  expect(isLinuxRoot('a disk') || printed).toBe(outcome);
});

test('a missing tool is printed, and an error in CI', () => {
  const warn = vi.spyOn(console, 'warn').mockImplementation(() => undefined);
  vi.stubEnv('CI', '');
  skipWithout('no Python');
  expect(warn).toHaveBeenCalledWith('skipped: no Python');
  vi.stubEnv('CI', 'yes');
  expect(() => skipWithout('no Python')).toThrow('no Python');
});
