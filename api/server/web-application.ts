/** Serves the built web application: a static page whose paths the application itself routes (history mode). */
import { existsSync, readdirSync } from 'node:fs';
import type { IncomingHttpHeaders } from 'node:http';
import { fileURLToPath } from 'node:url';
import fastifyStatic from '@fastify/static';
import type { FastifyInstance } from 'fastify';
import { readApiKey } from './authentication.ts';
import { handleStaticFileError } from './unserved-routes.ts';

/** `dist/web`, from the source and from the compiled program. */
export const builtWebFolder = new URL(
  import.meta.url.endsWith('.ts') ? '../../dist/web/' : '../../web/',
  import.meta.url,
);

/** Internal path to which requests for pages of the application are rewritten. No operation uses it. */
export const webPagePath = '/web-page';
/** First segment of the files with hashed names. */
const assetsSegment = 'assets';

/** Paths of the application. Below `/public`, `/context`, `/hub` and `/o`, only the links that SDKs build belong to it. */
const pagePattern =
  /^\/+(?:(?:signin|projects|runs|threads|usage|exports|datasets|experiments|prompts|queues|agents|settings|system)(?:\/.*)?|public\/+[^/]+\/+(?:r(?:\/.*)?|d)|context\/+.+|hub\/+[^/]+\/+.+|o\/+[^/]+\/+(?:projects\/+p|datasets)\/+.+)?$/;

const securityHeaders = {
  'content-security-policy':
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; script-src 'self'; connect-src 'self'; " +
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
};

/**
 * Whether a request wants a page of the application. Some paths without `/api/v1` are pages and operations, such as
 * `/runs/{id}`: a browser that opens a page names `text/html`. API clients do not name it, or they send a key, such as
 * those built on Java's HttpURLConnection, whose default `Accept` begins with `text/html`.
 */
export function isPageRequest(method: string, path: string, headers: IncomingHttpHeaders): boolean {
  if ((method !== 'GET' && method !== 'HEAD') || !pagePattern.test(path)) return false;
  if (/^\/*$/.test(path)) return true;
  return /\btext\/html\b/i.test(headers.accept ?? '') && readApiKey(headers) === undefined;
}

/** Returns the first segments of the paths of the files in `folder`. No prefix is added to these paths. */
export function listFileSegments(folder: URL): string[] {
  return [assetsSegment, ...listRootFiles(folder)];
}

/** Files next to `index.html`, such as icons. */
function listRootFiles(folder: URL): string[] {
  if (!existsSync(folder)) return [];
  const files = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isFile());
  return files.map(({ name }) => name).filter((name) => name !== 'index.html' && !/\.(?:br|gz)$/.test(name));
}

/**
 * Registers the page and the files of the application in `folder`. If `folder` has no application, its pages get 404
 * with an explanation. A file with the additional extension `.br` or `.gz` is a compressed form of the file without it.
 */
export async function serveWebApplication(server: FastifyInstance, folder: URL): Promise<void> {
  await server.register(async (scope) => {
    scope.setErrorHandler(handleStaticFileError);
    scope.addHook('onRequest', async (_request, reply) => {
      reply.headers(securityHeaders);
    });
    const route = { schema: { hide: true }, config: { metricName: 'webApplication' } };
    if (!existsSync(new URL('index.html', folder))) {
      scope.get(webPagePath, route, async (_request, reply) =>
        reply.code(404).type('text/plain; charset=utf-8').send('The web application is not built: npm run build\n'),
      );
      return;
    }
    const root = fileURLToPath(folder);
    await scope.register(fastifyStatic, { root, serve: false, preCompressed: true });
    const revalidated = { cacheControl: false };
    scope.get(webPagePath, route, async (_request, reply) =>
      reply.header('cache-control', 'no-cache').sendFile('index.html', revalidated),
    );
    for (const name of listRootFiles(folder)) {
      scope.get(`/${encodeURIComponent(name)}`, route, async (_request, reply) =>
        reply.header('cache-control', 'no-cache').sendFile(name, revalidated),
      );
    }
    scope.get<{ Params: { '*': string } }>(`/${assetsSegment}/*`, route, async (request, reply) =>
      reply.sendFile(`${assetsSegment}/${request.params['*']}`, { maxAge: '1y', immutable: true }),
    );
  });
}
