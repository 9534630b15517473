import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { optional } from '../server/formats.ts';
import { RawResponse } from '../server/operation.ts';
import { getAgentServerBase } from '../server/public-base.ts';
import { allowAllRule } from './access/rules.ts';
import { defineAgentOperation, readAccess } from './agent-operation.ts';
import { ClosedObject } from './agent-schema.ts';

const ui = Type.String({ description: 'Name of the UI in `ui` of the langgraph.json, usually that of its graph.' });

const getUiComponent = defineAgentOperation({
  operationId: 'getUiComponent',
  method: 'POST',
  path: '/ui/:ui',
  summary: 'Get the HTML that loads a component of a UI into a page',
  description:
    'For `LoadExternalComponent` of the SDK, which replaces `{{shadowRootId}}` by the id of an element and inserts the HTML into it.',
  access: readAccess,
  // The HTML names files that need no key.
  rule: allowAllRule,
  errors: ['UI_NOT_FOUND', 'UI_UNUSABLE'],
  schema: {
    params: Type.Object({ ui }),
    body: ClosedObject({
      name: Type.String({ minLength: 1, maxLength: 1_000, description: 'Name of the component.' }),
    }),
    response: { 200: Type.String() },
    produces: 'text/html; charset=utf-8',
  },
  handler: async ({ params, body, services: { agents }, request }) => {
    const { files, version } = await agents.uis.get(params.ui);
    const base = `${getAgentServerBase(request, agents.config)}/ui/${encodeURIComponent(params.ui)}`;
    const html = [...files.keys()].map((file) => {
      const url = `${base}/${encodeURIComponent(file)}?version=${version}`;
      if (file.endsWith('.css')) return `<link rel="stylesheet" href="${url}">`;
      const render = `${buildGlobalName(params.ui)}.render(${toScriptText(body.name)}, "{{shadowRootId}}")`;
      return `<script src="${url}" onload='${render}'></script>`;
    });
    return new RawResponse({
      headers: { 'content-type': 'text/html; charset=utf-8' },
      body: Buffer.from(html.join('\n')),
    });
  },
});

const mediaTypes: Readonly<Record<string, string>> = {
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
};

const getUiFile = defineAgentOperation({
  operationId: 'getUiFile',
  method: 'GET',
  path: '/ui/:ui/:file',
  summary: 'Get a file of a UI',
  description: 'Needs no key, because browsers load the file into the page of a client.',
  access: { public: true, tenantScope: 'none' },
  openToPages: true,
  errors: ['UI_NOT_FOUND'],
  schema: {
    params: Type.Object({ ui, file: Type.String() }),
    query: Type.Object({ version: optional(Type.String()) }),
    response: { 200: Type.String() },
    produces: 'text/javascript; charset=utf-8',
    alsoProduces: { 'text/css; charset=utf-8': Type.String() },
  },
  handler: async ({ params, query, services: { agents } }) => {
    // Callers without a key do not get the reason why a UI is unusable.
    const built = await agents.uis.get(params.ui).catch(() => undefined);
    const body = built?.files.get(params.file);
    if (body === undefined) throw runlakeError('UI_NOT_FOUND', { ui: `${params.ui}/${params.file}` });
    const type = mediaTypes[params.file.split('.').at(-1) ?? ''] ?? 'application/octet-stream';
    // During an update of the deployment, the file may be of the other revision than the HTML.
    const caching = query.version === built?.version ? 'public, max-age=31536000, immutable' : 'no-cache';
    return new RawResponse({ headers: { 'content-type': type, 'cache-control': caching }, body });
  },
});

export const uiOperations = [getUiComponent, getUiFile];

/** Name of the variable to which the bundle assigns the UI. Source: `@langchain/langgraph-ui`. */
function buildGlobalName(name: string): string {
  return `__LGUI_${name.replace(/[^a-zA-Z0-9]/g, '_')}`;
}

/** Returns a string literal of JavaScript that has only letters, digits and backslashes between its quotes. */
function toScriptText(text: string): string {
  return `"${text.replace(/\W/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)}"`;
}
