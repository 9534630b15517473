import { rm } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ExportReference } from '../graphs/graphs-file.ts';
import { importExport } from '../graphs/load-graph.ts';
import { runWithCredentials } from '../workers/child/project-globals.ts';
import { type AppRoute, listRoutes, parseUser, userHeader } from './app-route.ts';

interface App {
  fetch(request: Request, environment: object): Response | Promise<Response>;
}

/**
 * Generous limit for the size of the request headers: the parent process enforces the configured limit and adds its own
 * headers.
 */
const maxHeaderBytes = 8 * 1024 * 1024;

/**
 * Serves the export that `http.app` names on a Unix socket: a Hono app, or any object with `fetch(request)`. Runs code
 * of the project, so call it only in a separate process. It sets no timeouts; the parent process applies them.
 *
 * @returns the routes that the app defines.
 * @throws APP_UNUSABLE if the export has no `fetch`; any error of the import.
 */
export async function serveApp(source: ExportReference, socketPath: string): Promise<readonly AppRoute[]> {
  const app = await importExport(source);
  if (!isApp(app)) {
    throw runlakeError('APP_UNUSABLE', {
      reason: `the export '${source.name}' of ${source.path} has no fetch(request)`,
    });
  }
  const listener = getRequestListener(
    (request, { incoming, outgoing }) => {
      const user = userHeadersByRequest.get(incoming);
      const environment = { incoming, outgoing, ...(user !== undefined && { auth: parseUser(user) }) };
      const onEnd = (forget: () => void) => outgoing.once('close', forget);
      return runWithCredentials(incoming.headers, onEnd, () => app.fetch(request, environment));
    },
    { overrideGlobalObjects: false },
  );
  const userHeadersByRequest = new WeakMap<object, string>();
  const server = createServer(
    { maxHeaderSize: maxHeaderBytes, requestTimeout: 0, headersTimeout: 0 },
    (incoming, outgoing) => {
      const user = extractUserHeader(incoming);
      if (user !== undefined) userHeadersByRequest.set(incoming, user);
      void listener(incoming, outgoing);
    },
  );
  // Only the parent process closes connections. If the server closed an idle connection, a request could arrive on it
  // at that moment and fail.
  server.keepAliveTimeout = 0;
  // Remove the socket that an earlier process left.
  await rm(socketPath, { force: true });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(socketPath, resolve);
  });
  return listRoutes(app);
}

function isApp(value: unknown): value is App & object {
  return typeof value === 'object' && value !== null && 'fetch' in value && typeof value.fetch === 'function';
}

/**
 * Removes the user header from the request and returns its value, so that the app sees only the headers of its client.
 */
function extractUserHeader({ rawHeaders }: IncomingMessage): string | undefined {
  const nameIndex = rawHeaders.findIndex((name, index) => index % 2 === 0 && name.toLowerCase() === userHeader);
  return nameIndex < 0 ? undefined : rawHeaders.splice(nameIndex, 2)[1];
}
