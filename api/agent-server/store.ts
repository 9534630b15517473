import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { containsRequiredMetadata, type RequiredMetadata } from '../../pipelines/agents/auth/access-filter.ts';
import type { AccessGrant } from '../../pipelines/agents/auth/auth-process.ts';
import { listNamespaces, readItem, searchItems } from '../../pipelines/agents/store/read-items.ts';
import { checkNamespace } from '../../pipelines/agents/store/store-item.ts';
import { deleteItems, putItems } from '../../pipelines/agents/store/write-items.ts';
import { JsonObject, nullable, optional, Text, Timestamp } from '../server/formats.ts';
import type { Authorizer, Values } from './access/authorizer.ts';
import { defineAgentOperation, readAccess, runAccess } from './agent-operation.ts';
import { buildJsonResponse, ClosedObject, Limit, Offset, selectFields } from './agent-schema.ts';

const fields = {
  namespace: Type.Array(Type.String()),
  key: Type.String(),
  value: JsonObject(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
};

const Item = Type.Object(fields);
const FoundItem = Type.Object({
  ...fields,
  score: Type.Optional(Type.Number({ description: 'Similarity to the query, from -1 to 1.' })),
});

const Labels = (description: string) => Type.Array(Text({ maxLength: 1_000 }), { maxItems: 100, description });
const Key = () => Text({ maxLength: 10_000 });

const RefreshTtl = () =>
  optional(Type.Boolean(), {
    description: 'Whether reading resets the TTL of items. Default: the setting in the langgraph.json, otherwise true.',
  });

/*
 * Access rules. A handler can change the namespace and the key, and can return a filter. The server applies the filter
 * to the fields of the value, to `namespace` (a list) and to `key`. The status codes are those of the reference server
 * (`api/store.mts`): 404 for an inaccessible item, 403 for a new item that would be inaccessible.
 */

interface ItemKey {
  readonly namespace: readonly string[];
  readonly key: string;
}

const toItemFields = ({ namespace, key }: ItemKey, value?: unknown): Values => ({
  ...(value as object | undefined),
  namespace,
  key,
});

/** Returns true if the item exists. @throws STORE_ITEM_NOT_FOUND if the item exists but does not contain `required`. */
async function requireItemAccess(
  { deps }: Authorizer,
  itemKey: ItemKey,
  required: RequiredMetadata | undefined,
): Promise<boolean> {
  if (required === undefined) return true;
  const item = await readItem(deps.database, deps.deploymentId, itemKey, false);
  if (!item) return false;
  if (!containsRequiredMetadata(toItemFields(item, item.value), required))
    throw runlakeError('STORE_ITEM_NOT_FOUND', { key: itemKey.key });
  return true;
}

function requireMetadataMatch(metadata: Values, required: RequiredMetadata | undefined): void {
  if (containsRequiredMetadata(metadata, required)) return;
  throw runlakeError('AUTH_FORBIDDEN', { reason: 'You would have no access to the item.' });
}

/**
 * Restricts the operation to items with the required metadata. Returns the input as changed by the project's handler.
 */
function restrictItems({ deps }: Authorizer, { required, value }: AccessGrant): Values {
  deps.access.items = required;
  return value;
}

const deleteStoreItem = defineAgentOperation({
  operationId: 'deleteStoreItem',
  method: 'DELETE',
  path: '/store/items',
  summary: 'Delete an item',
  description: 'Succeeds if the item does not exist.',
  access: runAccess,
  rule: async ({ body }, authorizer, proceed) => {
    const requestedKey = { namespace: body.namespace ?? [], key: body.key };
    const { required, value } = await authorizer.allow('store:delete', requestedKey);
    const { namespace, key } = value as unknown as ItemKey;
    if (!(await requireItemAccess(authorizer, { namespace, key }, required)))
      requireMetadataMatch(toItemFields({ namespace, key }), required);
    return proceed({ body: { ...body, namespace, key } });
  },
  errors: ['STORE_ITEM_NOT_FOUND'],
  schema: {
    body: ClosedObject({ namespace: Type.Optional(Labels('Labels of the namespace.')), key: Key() }),
    response: { 204: Type.Null() },
  },
  handler: async ({ body, services: { agents } }) => {
    const { namespace = [], key } = body;
    await deleteItems(agents.database, agents.deploymentId, [{ namespace, key }]);
    return null;
  },
});

const getStoreItem = defineAgentOperation({
  operationId: 'getStoreItem',
  method: 'GET',
  path: '/store/items',
  summary: 'Get an item, or null if it does not exist',
  access: readAccess,
  rule: async ({ query }, authorizer, proceed) => {
    const requested = (query.namespace as readonly string[]).flatMap((labels) => labels.split('.'));
    const { required, value } = await authorizer.allow('store:get', { namespace: requested, key: query.key });
    const { namespace, key } = value as unknown as ItemKey;
    await requireItemAccess(authorizer, { namespace, key }, required);
    return proceed({ query: { ...query, namespace, key } });
  },
  errors: ['STORE_NAMESPACE_INVALID', 'STORE_ITEM_NOT_FOUND', 'OVERLOADED'],
  schema: {
    query: Type.Object({
      namespace: Type.Array(Type.String({ maxLength: 100_000 }), {
        description: 'Labels separated by dots, or one parameter per label.',
      }),
      key: Type.String({ maxLength: 10_000 }),
      refresh_ttl: Type.Optional(Type.Boolean()),
    }),
    response: { 200: nullable(Item) },
  },
  handler: async ({ query, services: { agents } }) => {
    const namespace = query.namespace.flatMap((labels) => labels.split('.'));
    checkNamespace(namespace);
    const refresh = query.refresh_ttl ?? agents.store.refreshOnRead;
    const item = await readItem(agents.database, agents.deploymentId, { namespace, key: query.key }, refresh);
    // Sends the JSON text `null` instead of an empty body, because clients cannot parse an empty body.
    return item ?? buildJsonResponse('null');
  },
});

const listStoreNamespaces = defineAgentOperation({
  operationId: 'listStoreNamespaces',
  method: 'POST',
  path: '/store/namespaces',
  summary: 'List the namespaces that have items',
  access: readAccess,
  rule: async ({ body }, authorizer, proceed) => {
    const requested = {
      namespace: body.prefix ?? [],
      ...selectFields(body, ['suffix', 'max_depth', 'limit', 'offset']),
    };
    const { namespace } = restrictItems(authorizer, await authorizer.allow('store:list_namespaces', requested));
    return proceed({ body: { ...body, prefix: namespace } });
  },
  schema: {
    body: ClosedObject({
      prefix: optional(Labels('First labels; `*` matches any label.')),
      suffix: optional(Labels('Last labels; `*` matches any label.')),
      max_depth: optional(
        Type.Integer({
          minimum: 1,
          maximum: 100,
          description: 'Longer namespaces are truncated to this number of labels.',
        }),
      ),
      limit: Limit(),
      offset: Offset(),
    }),
    response: { 200: Type.Object({ namespaces: Type.Array(Type.Array(Type.String())) }) },
  },
  handler: async ({ body, services: { agents }, request }) => ({
    namespaces: await listNamespaces(agents.database, agents.deploymentId, {
      matches: [
        { side: 'prefix', labels: body.prefix ?? [] },
        { side: 'suffix', labels: body.suffix ?? [] },
      ],
      maxDepth: body.max_depth ?? undefined,
      required: request.agentAccess?.items,
      limit: body.limit ?? 100,
      offset: body.offset ?? 0,
    }),
  }),
});

const putStoreItem = defineAgentOperation({
  operationId: 'putStoreItem',
  method: 'PUT',
  path: '/store/items',
  summary: 'Store an item',
  access: runAccess,
  rule: async ({ body }, authorizer, proceed) => {
    const { required, value: requested } = await authorizer.allow(
      'store:put',
      selectFields(body, ['namespace', 'key', 'value']),
    );
    const { namespace, key, value } = requested as unknown as ItemKey & { readonly value: unknown };
    await requireItemAccess(authorizer, { namespace, key }, required);
    requireMetadataMatch(toItemFields({ namespace, key }, value), required);
    return proceed({ body: { ...body, namespace, key, value } });
  },
  errors: [
    'STORE_ITEM_NOT_FOUND',
    'STORE_NAMESPACE_INVALID',
    'STORE_KEY_INVALID',
    'STORE_TOO_MANY_TEXTS',
    'STORE_WITHOUT_INDEX',
    'STORE_EMBEDDER_UNUSABLE',
    'GRAPH_WORKER_BUSY',
  ],
  schema: {
    body: ClosedObject({
      namespace: Labels('Labels, which must not be empty or contain a dot.'),
      key: Key(),
      value: JsonObject({ description: 'Replaces an existing value.' }),
      index: optional(
        Type.Union([
          Type.Literal(false),
          Type.Array(Type.String({ minLength: 1, maxLength: 1_000 }), { maxItems: 100 }),
        ]),
        { description: 'Paths of the texts to index, in place of the configured paths. false: do not index.' },
      ),
      ttl: optional(Type.Number({ exclusiveMinimum: 0, maximum: 525_600_000 }), {
        description: 'TTL in minutes. Default: the setting in the langgraph.json, otherwise none.',
      }),
    }),
    response: { 204: Type.Null() },
  },
  handler: async ({ body, services: { agents } }) => {
    const { index, ttl, ...item } = body;
    const config = agents.store;
    if (Array.isArray(index) && config.index === undefined)
      throw runlakeError('STORE_WITHOUT_INDEX', { field: 'index' });
    const put = { ...item, index: index ?? undefined, ttl: ttl ?? undefined };
    await putItems(agents.database, agents.deploymentId, config, [put]);
    return null;
  },
});

const searchStoreItems = defineAgentOperation({
  operationId: 'searchStoreItems',
  method: 'POST',
  path: '/store/items/search',
  summary: 'Search items below a prefix, last updated first, or most similar to a query first',
  access: readAccess,
  rule: async ({ body }, authorizer, proceed) => {
    const requested = {
      namespace: body.namespace_prefix ?? [],
      ...selectFields(body, ['filter', 'limit', 'offset', 'query']),
    };
    const { namespace } = restrictItems(authorizer, await authorizer.allow('store:search', requested));
    return proceed({ body: { ...body, namespace_prefix: namespace } });
  },
  errors: [
    'ANSWER_TOO_LARGE',
    'STORE_FILTER_INVALID',
    'STORE_WITHOUT_INDEX',
    'STORE_TOO_MANY_VECTORS',
    'STORE_EMBEDDER_UNUSABLE',
    'GRAPH_WORKER_BUSY',
  ],
  schema: {
    body: ClosedObject({
      namespace_prefix: optional(Labels('First labels of the namespaces. Empty: all items.')),
      filter: optional(
        JsonObject({
          description: 'Fields of the value, compared for equality or with $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin.',
          // Each field adds a condition to the statement. Thousands of conditions keep Postgres busy for a minute.
          maxProperties: 100,
        }),
      ),
      limit: Limit(),
      offset: Offset(),
      query: optional(Type.String({ maxLength: 100_000, description: 'Text for similarity search.' })),
      refresh_ttl: RefreshTtl(),
    }),
    response: { 200: Type.Object({ items: Type.Array(FoundItem) }) },
  },
  handler: async ({ body, services: { agents }, request }) => {
    const config = agents.store;
    if (body.query && config.index === undefined) throw runlakeError('STORE_WITHOUT_INDEX', { field: 'query' });
    const items = await searchItems(agents.database, agents.deploymentId, config, {
      namespacePrefix: body.namespace_prefix ?? [],
      filter: body.filter ?? undefined,
      query: body.query ?? undefined,
      limit: body.limit ?? 10,
      offset: body.offset ?? 0,
      required: request.agentAccess?.items,
      refresh: body.refresh_ttl ?? config.refreshOnRead,
      limitBytes: agents.config.maxPageBytes,
    });
    return { items };
  },
});

export const storeOperations = [putStoreItem, getStoreItem, deleteStoreItem, searchStoreItems, listStoreNamespaces];
