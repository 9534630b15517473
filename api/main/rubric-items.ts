import { type Static, Type } from 'typebox';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { conditionOperators, type RubricItem, type RubricItemWithConfig } from '../../pipelines/queues/rubric.ts';
import { OneOf, optional, Text, Uuid } from '../server/formats.ts';
import { FeedbackConfigShape, formatFeedbackConfig } from './feedback-configs.ts';

const FeedbackKey = () => Text({ minLength: 1, maxLength: 180 });
const Descriptions = () => optional(Dictionary(Type.String()));

const Conditions = (description: string) =>
  optional(
    Type.Object({
      join: OneOf(['all', 'any']),
      rules: Type.Array(
        Type.Object({
          key: FeedbackKey(),
          op: OneOf(conditionOperators),
          values: optional(Type.Array(Type.Number(), { maxItems: 1_000 }), { description: 'Values of categories.' }),
        }),
        { minItems: 1, maxItems: 100 },
      ),
    }),
    { description: `${description} An update without it keeps it; null clears it.` },
  );

const itemFields = {
  feedback_key: FeedbackKey(),
  description: optional(Text({ maxLength: 100_000 })),
  value_descriptions: Descriptions(),
  score_descriptions: Descriptions(),
  is_required: optional(Type.Boolean()),
  is_assertion: optional(Type.Boolean()),
  regex_validator: optional(Text({ maxLength: 500 }), {
    description: 'Pattern that a text must match; clients apply it. An update without it keeps it; null clears it.',
  }),
  required_if: Conditions('Required only if these rules on earlier items are satisfied; clients apply them.'),
  visible_if: Conditions('Shown only if these rules on earlier items are satisfied; clients apply them.'),
};

/** A rubric item in requests. Clients copy items from responses, so it has their fields too. */
export const NewRubricItem = Type.Object({
  ...itemFields,
  feedback_config_id: optional(Uuid({ description: 'Accepted: a feedback key has one config, which the item uses.' })),
  feedback_config: Type.Optional(Type.Unknown({ description: 'Accepted and not stored.' })),
});

/** A rubric item in responses. */
export const RubricItemShape = Type.Object({
  ...itemFields,
  feedback_config_id: optional(Uuid(), { description: 'Absent in lists.' }),
  feedback_config: optional(FeedbackConfigShape, { description: 'Config of the feedback key. Absent in lists.' }),
});

export const toRubricItem = ({
  feedback_config_id: _id,
  feedback_config: _config,
  ...item
}: Static<typeof NewRubricItem>): RubricItem => item;

export function formatRubricItem(item: RubricItem | RubricItemWithConfig): Static<typeof RubricItemShape> {
  if (!('feedback_config' in item)) return item as Static<typeof RubricItemShape>;
  const { feedback_config: config, ...fields } = item;
  return {
    ...(fields as Static<typeof RubricItemShape>),
    feedback_config_id: config?.id ?? null,
    feedback_config: config && formatFeedbackConfig(config),
  };
}
