import { afterEach, expect, it, vi } from 'vitest';
import { buildGraphEnvironment } from '../../../infra/config/graph-environment.ts';

afterEach(() => {
  vi.unstubAllEnvs();
});

it.each([
  ['http://user:password@proxy.example:3128', 'http://proxy.example:3128'],
  ['http://user@proxy.example:3128/', 'http://proxy.example:3128/'],
  ['user:password@proxy.example:3128', 'proxy.example:3128'],
  ['http://user:pass@w/rd@proxy.example:3128', 'http://proxy.example:3128'],
  ['http://user:pass\nword@proxy.example:3128', 'http://proxy.example:3128'],
  ['socks5h://proxy.example:1080', 'socks5h://proxy.example:1080'],
  ['proxy.example:3128', 'proxy.example:3128'],
])('gives graph code the proxy %j without its password', (given, expected) => {
  const names = ['HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy'];
  for (const name of names) vi.stubEnv(name, given);
  vi.stubEnv('NO_PROXY', 'localhost,.example');
  expect(buildGraphEnvironment()).toMatchObject({
    ...Object.fromEntries(names.map((name) => [name, expected])),
    NO_PROXY: 'localhost,.example',
  });
});
