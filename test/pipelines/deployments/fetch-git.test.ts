import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { buildGraphEnvironment } from '../../../infra/config/graph-environment.ts';
import { fetchGit, type GitSource } from '../../../pipelines/deployments/build/fetch-git.ts';
import { checkReference, checkRepositoryUrl } from '../../../pipelines/deployments/check-source.ts';
import { forSuite } from '../../for-suite.ts';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';
import { startGitServer } from './git-server.ts';

const server = forSuite(() => startGitServer());
let url: string;
let folder: string;
let commits: string[];

beforeAll(async () => {
  ({ url } = server);
  commits = ['one', 'two'].map((text) => server.commit({ 'file.txt': text }));
  server.tag('v1', commits[0]!);
});
beforeEach(() => {
  folder = mkdtempSync(join(server.root, 'fetched-'));
  server.authorizations.length = 0;
});

const fetchSource = (source: Partial<GitSource>, allowPrivate = true, environment = buildGraphEnvironment()) =>
  fetchGit(
    { url, reference: 'main', ...source },
    {
      ...{ folder, account: undefined, environment, allowPrivate },
      ...{ signal: AbortSignal.timeout(60_000), onOutput: () => undefined },
    },
  );
const content = () => readFileSync(join(folder, 'file.txt'), 'utf8');

it('connects to the checked address, not to a proxy of the environment', async () => {
  const asked: string[] = [];
  const proxy = createServer((request, response) => {
    asked.push(String(request.url));
    response.writeHead(502).end();
  }).on('connect', (request, socket) => {
    asked.push(String(request.url));
    socket.end();
  });
  const address = `http://127.0.0.1:${await listenOnLoopback(proxy)}`;
  const names = ['http_proxy', 'HTTP_PROXY', 'https_proxy', 'HTTPS_PROXY', 'all_proxy', 'ALL_PROXY'];
  const proxies = Object.fromEntries(names.map((name) => [name, address]));
  onTestFinished(() => {
    proxy.close();
  });
  expect(await fetchSource({}, true, { ...buildGraphEnvironment(), ...proxies })).toBe(commits[1]);
  expect(asked).toEqual([]);
});

it('fetches the newest commit of a branch', async () => {
  expect(await fetchSource({})).toBe(commits[1]);
  expect(content()).toBe('two');
});

it('fetches a tag, and a commit', async () => {
  expect(await fetchSource({ reference: 'refs/tags/v1' })).toBe(commits[0]);
  expect(content()).toBe('one');
  folder = mkdtempSync(join(server.root, 'fetched-'));
  expect(await fetchSource({ commit: commits[0]! })).toBe(commits[0]);
  expect(content()).toBe('one');
});

it('sends a token, which appears in no file', async () => {
  await expect(fetchSource({ url: server.privateUrl })).rejects.toMatchObject({
    ...{ code: 'BUILD_FAILED', message: expect.stringContaining('a private repository needs the secret GIT_TOKEN') },
  });
  folder = mkdtempSync(join(server.root, 'fetched-'));
  await fetchSource({ url: server.privateUrl, token: 'token-of-the-test' });
  const expected = `Basic ${Buffer.from('x-access-token:token-of-the-test').toString('base64')}`;
  expect(server.authorizations).toContain(expected);
  expect(spawnSync('grep', ['-r', 'token-of-the-test', folder]).status).toBe(1);
});

it.each([
  ['an unknown branch', { reference: 'nothing' }],
  ['an unknown repository', { url: 'http://127.0.0.1:1/none.git' }],
])('fails for %s', async (_what, source) => {
  await expect(fetchSource(source)).rejects.toMatchObject({ code: 'BUILD_FAILED' });
});

it.each(['http://2130706433', 'http://0x7f.1', 'http://[::ffff:127.0.0.1]', 'http://LOCALHOST', 'git@2130706433:x'])(
  'finds the private address in %s',
  async (host) => {
    const refused = fetchSource({ url: `${host}/repo.git` }, false);
    await expect(refused).rejects.toMatchObject({ message: expect.stringMatching(/loopback address/) });
  },
);

it('gives git the host that was checked', async () => {
  expect(await fetchSource({ url: url.replace('127.0.0.1', '0x7F.1') })).toBe(commits[1]);
});

it('refuses private addresses unless they are allowed, and metadata addresses always', async () => {
  await expect(fetchSource({}, false)).rejects.toMatchObject({ message: expect.stringMatching(/loopback address/) });
  const metadata = fetchSource({ url: 'http://169.254.169.254/latest' });
  await expect(metadata).rejects.toMatchObject({ message: expect.stringMatching(/metadata address/) });
});

it.each([
  'file:///etc/passwd',
  'ext::sh -c touch% /tmp/escaped',
  '--upload-pack=touch /tmp/escaped',
  'git://example.com/repo',
  'http://user:password@example.com/repo',
  'https://token@example.com/repo',
  'ssh://-oProxyCommand=touch/repo',
  'ssh://$(id)/repo',
  'ssh://example.com;id/repo',
  'ssh://`id`.example.com/repo',
  '-oProxyCommand=x@example.com:repo',
  '/srv/repo',
  'https://example.com',
  'https://exa mple.com/repo',
  'https://example.com./repo',
  'git@example.com.:repo',
  '',
])('refuses the URL %j', (bad) => {
  expect(() => checkRepositoryUrl(bad)).toThrowError(expect.objectContaining({ code: 'DEPLOYMENT_INVALID' }));
  expect(existsSync('/tmp/escaped')).toBe(false);
});

it.each([
  'https://github.com/a/b.git',
  'http://example.com:8080/a',
  'ssh://git@example.com/a',
  'git@github.com:a/b.git',
  'https://[2001:db8::1]/a',
  'ssh://git@[2001:db8::1]/a',
  'https://bücher.example/a',
  'ssh://build_1.example.com/a',
])('accepts the URL %j', (good) => {
  expect(checkRepositoryUrl(good)).toBeInstanceOf(URL);
});

it.each([
  '--upload-pack=x',
  '-b',
  'a..b',
  'a b',
  'a:b',
  'refs/heads/../x',
  'a~1',
  'a^',
  '',
  '/a',
  'a/',
  '@{u}',
  'a\nb',
])('refuses the reference %j', (bad) => {
  expect(() => checkReference(bad)).toThrowError(expect.objectContaining({ code: 'DEPLOYMENT_INVALID' }));
});
