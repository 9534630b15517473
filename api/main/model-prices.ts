import { type Static, Type } from 'typebox';
import { Dictionary } from '../../infra/json/dictionary.ts';
import {
  updatePrice as changePrice,
  createPrice as insertPrice,
  type ModelPrice,
  listPrices as readList,
  deletePrice as removePrice,
  type SentPrice,
} from '../../pipelines/costs/model-price.ts';
import { modelKeys } from '../../pipelines/costs/price-map.ts';
import { nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';

const Params = Type.Object({ id: Uuid() });

const Cost = (description?: string) =>
  Type.Union([Type.Number(), Type.String({ maxLength: 64 })], description === undefined ? {} : { description });

const CostDetails = (description: string) => optional(Dictionary(Cost(), { maxProperties: 32 }), { description });

const SentPriceBody = Type.Object({
  name: Text({ minLength: 1, maxLength: 256 }),
  start_time: optional(Timestamp(), { description: 'Runs that start earlier do not have this price.' }),
  match_path: optional(Type.Array(OneOf(modelKeys), { maxItems: modelKeys.length }), {
    description:
      'Members of `inputs` and `extra.invocation_params` whose value is compared, if the metadata have no `ls_model_name`. By default all.',
  }),
  match_pattern: Text({
    minLength: 1,
    maxLength: 1_000,
    description: 'Regular expression of RE2, compared with any part of the name of the model.',
  }),
  provider: optional(Text({ minLength: 1, maxLength: 256 }), {
    description: 'Applies only to runs whose metadata have this `ls_provider`.',
  }),
  prompt_cost: Cost('Dollars a prompt token: a number, or a decimal as text.'),
  completion_cost: Cost('Dollars a completion token: a number, or a decimal as text.'),
  prompt_cost_details: CostDetails('Kind of token in `input_token_details` → dollars a token.'),
  completion_cost_details: CostDetails('Kind of token in `output_token_details` → dollars a token.'),
});

const CostDetailsResponse = () => nullable(Dictionary(Type.String()));

const Price = Type.Object({
  id: Uuid(),
  name: Type.String(),
  tenant_id: nullable(Uuid(), { description: 'Id of the workspace; null for the prices of the release.' }),
  start_time: nullable(Timestamp()),
  match_path: Type.Array(Type.String()),
  match_pattern: Type.String(),
  provider: nullable(Type.String()),
  prompt_cost: Type.String({ description: 'Dollars a token, as an exact decimal.' }),
  completion_cost: Type.String(),
  prompt_cost_details: CostDetailsResponse(),
  completion_cost_details: CostDetailsResponse(),
});

const toSentPrice = (body: Static<typeof SentPriceBody>): SentPrice => ({
  ...body,
  match_path: body.match_path ?? modelKeys,
  start_time: body.start_time ?? null,
  provider: body.provider ?? null,
  prompt_cost_details: body.prompt_cost_details ?? null,
  completion_cost_details: body.completion_cost_details ?? null,
});

const toResponse = ({ match_path, ...price }: ModelPrice) => ({ ...price, match_path: [...match_path] });

const listModelPrices = defineOperation({
  operationId: 'listModelPrices',
  method: 'GET',
  path: '/model-price-map',
  summary: 'List the prices of models',
  description:
    'The prices of the workspace, then those of the release, in the order in which they apply: the first that matches a model counts.',
  access: { permission: 'model-prices:read', tenantScope: 'workspace' },
  schema: { response: { 200: Type.Array(Price) } },
  handler: async ({ caller, services }) => (await readList(services.database, caller.workspaceId)).map(toResponse),
});

const effectDescription = 'Applies to runs that are accepted from then on; within 5 seconds in other processes.';

const createModelPrice = defineOperation({
  operationId: 'createModelPrice',
  method: 'POST',
  path: '/model-price-map',
  summary: 'Create a price of models',
  description: effectDescription,
  access: { permission: 'model-prices:manage', tenantScope: 'workspace' },
  errors: ['BAD_REQUEST', 'LIMIT_REACHED'],
  schema: { body: SentPriceBody, response: { 200: Price } },
  handler: async ({ caller: { workspaceId }, body, services }) => {
    const price = await insertPrice(services.database, workspaceId, toSentPrice(body));
    services.prices.forget(workspaceId);
    return toResponse(price);
  },
});

const updateModelPrice = defineOperation({
  operationId: 'updateModelPrice',
  method: 'PUT',
  path: '/model-price-map/:id',
  summary: 'Replace a price of models',
  description: effectDescription,
  access: { permission: 'model-prices:manage', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'BAD_REQUEST', 'LIMIT_REACHED'],
  schema: { params: Params, body: SentPriceBody, response: { 200: Price } },
  handler: async ({ caller: { workspaceId }, params, body, services }) => {
    const price = await changePrice(services.database, workspaceId, params.id, toSentPrice(body));
    services.prices.forget(workspaceId);
    return toResponse(price);
  },
});

const deleteModelPrice = defineOperation({
  operationId: 'deleteModelPrice',
  method: 'DELETE',
  path: '/model-price-map/:id',
  summary: 'Delete a price of models',
  description: effectDescription,
  access: { permission: 'model-prices:manage', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'BAD_REQUEST'],
  schema: { params: Params, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller: { workspaceId }, params, services }) => {
    await removePrice(services.database, workspaceId, params.id);
    services.prices.forget(workspaceId);
    return { message: 'Model price deleted.' };
  },
});

export const modelPriceOperations = [listModelPrices, createModelPrice, updateModelPrice, deleteModelPrice];
