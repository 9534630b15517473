import { Type } from 'typebox';
import type { StoreRules } from '../../../pipelines/agents/store/store-item.ts';
import { JsonObject, optional, Text, Timestamp } from '../../server/formats.ts';
import type { Agents } from '../agent-services.ts';

const fields = {
  namespace: Type.Array(Type.String()),
  key: Type.String(),
  value: JsonObject(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
};

export const Item = Type.Object(fields);
export const FoundItem = Type.Object({
  ...fields,
  score: Type.Optional(Type.Number({ description: 'Similarity to the query, from -1 to 1.' })),
});

export const Labels = (description: string) => Type.Array(Text({ maxLength: 1_000 }), { maxItems: 100, description });
export const Key = () => Text({ maxLength: 10_000 });

export const RefreshTtl = () =>
  optional(Type.Boolean(), {
    description: 'Whether reading resets the TTL of items. Default: the setting in the langgraph.json, otherwise true.',
  });

/** Without `store` in the langgraph.json there is no index and no TTL. */
export const getStoreRules = ({ store }: Agents): StoreRules => store ?? { refreshOnRead: true };
