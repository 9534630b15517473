import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { brotliCompressSync } from 'node:zlib';
import type { FastifyInstance } from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { operations } from '../../../api/main/operations.ts';
import { mainApi } from '../../../api/server/api-form.ts';
import { buildServer } from '../../../api/server/build-server.ts';
import type { Services } from '../../../api/server/services.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import { logger } from '../../silent-logger.ts';

const { config } = loadConfig({});
const page = '<!doctype html><title>Runlake</title>';
const script = `console.log(${'1'.repeat(2_000)})`;
/** `Accept` of Chromium and Firefox when they open a page. */
const browser = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8';
/** `Accept` of Java's HttpURLConnection. */
const java = 'text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2';

async function start(folder: string): Promise<FastifyInstance> {
  const form = { ...mainApi(config), webFolder: pathToFileURL(`${folder}/`) };
  return buildServer({ config, services: {} as Services, logger, operations, form });
}

describe('a built application', () => {
  const folder = mkdtempSync(join(tmpdir(), 'runlake-web-'));
  let server: FastifyInstance;
  const open = (url: string, headers: Record<string, string> = { accept: browser }) =>
    server.inject({ method: 'GET', url, headers });

  beforeAll(async () => {
    mkdirSync(join(folder, 'assets'));
    writeFileSync(join(folder, 'index.html'), page);
    writeFileSync(join(folder, 'favicon.svg'), '<svg/>');
    writeFileSync(join(folder, 'assets/index-B4x.js'), script);
    writeFileSync(join(folder, 'assets/index-B4x.js.br'), brotliCompressSync(script));
    writeFileSync(join(folder, '..', `${folder.split('/').pop()}-secret`), 'never served');
    server = await start(folder);
  });
  afterAll(async () => {
    await server.close();
    rmSync(folder, { recursive: true });
    rmSync(`${folder}-secret`);
  });

  it.each([
    '/',
    '/signin',
    '/projects',
    '/projects/4b1f',
    '/projects/4b1f/runs/7c2a?tab=messages',
    '/runs/0b4e2f9a-4f0e-4b57-9b0a-1d9a4a3f6c11',
    '/threads/x',
    '/usage',
    '/exports',
    '/datasets/1/compare',
    '/experiments',
    '/prompts/a/b',
    '/queues/1',
    '/agents/trip/threads/1',
    '/settings/keys',
    '/system',
    '/public/0b4e2f9a-4f0e-4b57-9b0a-1d9a4a3f6c11/r',
    '/public/0b4e2f9a-4f0e-4b57-9b0a-1d9a4a3f6c11/d',
    '/hub/acme/greeting',
    '/hub/acme/greeting/0a1b2c3d',
    '/o/1/datasets/2/compare?selectedSessions=3',
    '/o/1/projects/p/2/r/3?trace_id=3&start_time=2026-01-01T00:00:00',
  ])('serves its page at %s', async (url) => {
    const answer = await open(url);
    expect(answer.statusCode).toBe(200);
    expect(answer.body).toBe(page);
    expect(answer.headers['content-type']).toBe('text/html; charset=utf-8');
    expect(answer.headers['cache-control']).toBe('no-cache');
  });

  it('serves its page to browsers whose proxy asks for a password', async () => {
    expect((await open('/projects', { accept: browser, authorization: 'Basic dTpw' })).body).toBe(page);
  });

  it.each([
    ['x-api-key', 'k'],
    ['authorization', 'Bearer k'],
  ])('leaves a request with a key in %s to the API, which may name text/html', async (header, value) => {
    const answer = await open('/runs/1', { accept: java, [header]: value });
    expect(answer.headers['content-type']).toMatch(/^application\/(problem\+)?json/);
    expect(answer.body).not.toBe(page);
  });

  it('forbids inline scripts, frames and other origins', async () => {
    for (const url of ['/', '/assets/index-B4x.js', '/favicon.svg']) {
      const { headers } = await open(url);
      expect(headers['content-security-policy']).toBe(
        "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; script-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
      );
      expect(headers['x-content-type-options']).toBe('nosniff');
      expect(headers['x-frame-options']).toBe('DENY');
      expect(headers['referrer-policy']).toBe('no-referrer');
    }
  });

  it('lets browsers keep files with hashed names, compressed if they accept that', async () => {
    const plain = await open('/assets/index-B4x.js', { accept: '*/*' });
    expect(plain.body).toBe(script);
    expect(plain.headers['content-type']).toBe('application/javascript; charset=utf-8');
    expect(plain.headers['cache-control']).toBe('public, max-age=31536000, immutable');
    const compressed = await open('/assets/index-B4x.js', { accept: '*/*', 'accept-encoding': 'gzip, br' });
    expect(compressed.headers['content-encoding']).toBe('br');
    expect(compressed.headers['content-type']).toBe('application/javascript; charset=utf-8');
    expect(compressed.headers['cache-control']).toBe('public, max-age=31536000, immutable');
    expect(compressed.rawPayload.equals(brotliCompressSync(script))).toBe(true);
  });

  it('lets browsers keep the page only after they asked', async () => {
    const first = await open('/projects');
    const again = await open('/projects', { accept: browser, 'if-none-match': String(first.headers.etag) });
    expect(again.statusCode).toBe(304);
    expect((await open('/favicon.svg')).headers['cache-control']).toBe('no-cache');
  });

  it('answers HEAD as GET without a body', async () => {
    const answer = await server.inject({ method: 'HEAD', url: '/projects', headers: { accept: browser } });
    expect([answer.statusCode, answer.body]).toEqual([200, '']);
  });

  it.each([
    ['GET', '/api/v1/runs/1', browser],
    ['GET', '/api/v1/unknown', browser],
    ['GET', '/api/unknown', browser],
    ['GET', '/unknown', browser],
    ['GET', '/assets/unknown.js', browser],
    ['GET', `/assets/..%2f..%2f${folder.split('/').pop()}-secret`, browser],
    ['GET', '/assets/%2e%2e/%2e%2e/package.json', browser],
    ['GET', '/assets/%00', browser],
    ['GET', '/runs/1', 'application/json'],
    ['GET', '/datasets', '*/*'],
    ['POST', '/projects', browser],
  ] as const)('leaves %s %s (%s) to the API, whose errors are JSON', async (method, url, accept) => {
    const answer = await server.inject({ method, url, headers: { accept } });
    expect([400, 401, 404]).toContain(answer.statusCode);
    expect(answer.json()).toHaveProperty('code');
    expect(answer.body).not.toContain('never served');
    expect(answer.headers['cache-control']).toBeUndefined();
  });
});

describe('without a built application', () => {
  it('says so at its pages, and serves the API', async () => {
    const server = await start(join(tmpdir(), 'runlake-web-missing'));
    const answer = await server.inject({ method: 'GET', url: '/', headers: { accept: browser } });
    expect(answer.statusCode).toBe(404);
    expect(answer.headers['content-type']).toBe('text/plain; charset=utf-8');
    expect(answer.body).toBe('The web application is not built: npm run build\n');
    expect((await server.inject('/ok')).statusCode).toBe(200);
    await server.close();
  });
});
