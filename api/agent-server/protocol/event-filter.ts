import { Type } from 'typebox';
import { optional } from '../../server/formats.ts';

/** Source: `@langchain/protocol` 0.0.13, EventStreamRequest and SubscribeParams. Other fields are ignored. */
export const Filter = Type.Object({
  channels: Type.Array(
    Type.String({
      pattern: '^(?:values|updates|messages|tools|lifecycle|input|checkpoints|tasks|custom(?::.{1,200})?)$',
    }),
    {
      minItems: 1,
      maxItems: 100,
      description:
        'values, updates, messages, tools, lifecycle, input, tasks, checkpoints, custom, or `custom:` with the name of one custom event.',
    },
  ),
  namespaces: optional(
    Type.Array(Type.Array(Type.String({ maxLength: 1_000 }), { maxItems: 100 }), { maxItems: 100 }),
    {
      description: 'Only namespaces with one of these prefixes. Default: all.',
    },
  ),
  depth: optional(Type.Integer({ minimum: 0, maximum: 1_000 }), {
    description: 'Maximum number of levels below those prefixes. Default: no limit.',
  }),
});

export const FilterSince = Type.Object({
  ...Filter.properties,
  since: optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }), {
    description:
      'Start after the event with this `seq`. Default: from the beginning of the active runs, otherwise of the last run.',
  }),
});
