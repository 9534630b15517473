import { Type } from 'typebox';
import { optional } from '../../server/formats.ts';

/** Source: `@langchain/protocol` 0.0.13, EventStreamRequest and SubscribeParams. Other fields say nothing. */
export const Filter = Type.Object({
  channels: Type.Array(
    Type.String({
      pattern: '^(?:values|updates|messages|tools|lifecycle|input|checkpoints|tasks|custom(?::.{1,200})?)$',
    }),
    {
      minItems: 1,
      maxItems: 100,
      description:
        'values, updates, messages, tools, lifecycle, input, tasks, checkpoints, custom, or custom: and the name of one kind.',
    },
  ),
  namespaces: optional(
    Type.Array(Type.Array(Type.String({ maxLength: 1_000 }), { maxItems: 100 }), { maxItems: 100 }),
    {
      description: 'Only what these begin. Default: all.',
    },
  ),
  depth: optional(Type.Integer({ minimum: 0, maximum: 1_000 }), {
    description: 'How far below those namespaces. Default: any.',
  }),
});

export const FilterSince = Type.Object({
  ...Filter.properties,
  since: optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }), {
    description: 'The `seq` after which to go on. Default: the runs that go on, else the last one.',
  }),
});
