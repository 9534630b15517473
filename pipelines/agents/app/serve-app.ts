import { rm } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { fault } from '../../../infra/errors/runlake-error.ts';
import type { ExportReference } from '../graphs/graphs-file.ts';
import { importExport } from '../graphs/load-graph.ts';
import { actingFor } from '../workers/project-globals.ts';
import { type AppRoute, namedRoutes } from './app-route.ts';
import { userHeader, userOf } from './app-user.ts';

interface App {
  fetch(request: Request, environment: object): Response | Promise<Response>;
}

/** Of a request, with what its client and the way here added to it. */
const mostHeaderBytes = 8 * 1024 * 1024;

/**
 * Serves what `http.app` names on a Unix socket: a Hono app, or any object with `fetch(request)`. Runs code of the project, so that it
 * belongs into a process of its own. The limits are those of the server in front.
 *
 * @returns the routes that the app names. @throws APP_UNUSABLE, and what importing it throws.
 */
export async function serveApp(source: ExportReference, socketPath: string): Promise<readonly AppRoute[]> {
  const app = await importExport(source);
  if (!isApp(app)) {
    throw fault('APP_UNUSABLE', { reason: `the export '${source.name}' of ${source.path} has no fetch(request)` });
  }
  const answer = getRequestListener(
    (request, { incoming, outgoing }) => {
      const user = users.get(incoming);
      const environment = { incoming, outgoing, ...(user !== undefined && { auth: userOf(user) }) };
      const onEnd = (forget: () => void) => outgoing.once('close', forget);
      return actingFor(incoming.headers, onEnd, () => app.fetch(request, environment));
    },
    { overrideGlobalObjects: false },
  );
  const users = new WeakMap<object, string>();
  const server = createServer(
    { maxHeaderSize: mostHeaderBytes, requestTimeout: 0, headersTimeout: 0 },
    (incoming, outgoing) => {
      const user = takeUser(incoming);
      if (user !== undefined) users.set(incoming, user);
      void answer(incoming, outgoing);
    },
  );
  // Connections are the front's: closed from here, one could go while a request is on its way.
  server.keepAliveTimeout = 0;
  // Of a process that was here before.
  await rm(socketPath, { force: true });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(socketPath, resolve);
  });
  return namedRoutes(app);
}

function isApp(value: unknown): value is App & object {
  return typeof value === 'object' && value !== null && 'fetch' in value && typeof value.fetch === 'function';
}

/** Takes it out of the request, so that the app sees the headers of its client alone. */
function takeUser({ rawHeaders }: IncomingMessage): string | undefined {
  const place = rawHeaders.findIndex((name, index) => index % 2 === 0 && name.toLowerCase() === userHeader);
  return place < 0 ? undefined : rawHeaders.splice(place, 2)[1];
}
