import { useQuery } from '@tanstack/react-query';
import { type KeyboardEvent, useEffect, useRef, useState } from 'react';
import { type Answer, call } from '../../api/client.ts';
import { useShortcuts } from '../../components/shortcuts.tsx';
import { showInvisible, Value } from '../../components/text.tsx';

export type Queue = Answer<'get', '/api/v1/annotation-queues/{queue_id}'>;
export type RubricItem = NonNullable<Queue['rubric_items']>[number];
export type Config = Answer<'get', '/api/v1/feedback-configs'>[number]['feedback_config'];

/** The input of a reviewer for a feedback key. */
export interface Rating {
  /** A number or a text, depending on the config of the key. */
  readonly text: string;
  /** Value of the selected category. */
  readonly category: number | undefined;
  readonly comment: string;
}
export const emptyRating: Rating = { text: '', category: undefined, comment: '' };

/** Reads the configs of feedback keys, by key. */
export function useConfigs(keys: readonly string[]) {
  return useQuery({
    queryKey: ['feedback-configs', keys],
    queryFn: async ({ signal }) => {
      const configs = await call('get', '/api/v1/feedback-configs', { query: { key: [...keys], limit: 100 }, signal });
      return new Map(configs.map(({ feedback_key, feedback_config }) => [feedback_key, feedback_config]));
    },
    enabled: keys.length > 0,
  });
}

/** The criteria of a queue. One criterion is active: keys select its category or enter its score. */
export function Rubric({
  items,
  configs,
  ratings,
  onRate,
}: {
  readonly items: readonly RubricItem[];
  readonly configs: ReadonlyMap<string, Config>;
  readonly ratings: ReadonlyMap<string, Rating>;
  readonly onRate: (key: string, change: Partial<Rating>) => void;
}) {
  const [active, setActive] = useState(0);
  const list = useRef<HTMLOListElement>(null);
  const item = items[active];
  const config = item && configs.get(item.feedback_key);
  const focusField = (name: 'score' | 'comment') =>
    list.current?.children[active]?.querySelector<HTMLElement>(`[name="${name}"]`)?.focus();
  const move = (step: number) => setActive(Math.max(0, Math.min(items.length - 1, active + step)));
  useEffect(() => list.current?.children[active]?.scrollIntoView({ block: 'nearest' }), [active]);
  const press = (digit: number) => {
    if (item === undefined) return;
    if (config?.type !== 'categorical') {
      onRate(item.feedback_key, { text: String(digit) });
      focusField('score');
      return;
    }
    const category = config.categories?.[digit - 1];
    if (category === undefined) return;
    const isChosen = ratings.get(item.feedback_key)?.category === category.value;
    onRate(item.feedback_key, { category: isChosen ? undefined : category.value });
    if (!isChosen) move(1);
  };
  const digits = Array.from({ length: 10 }, (_, digit) => [digit, { run: () => press(digit) }]);
  useShortcuts({
    ...Object.fromEntries(digits),
    j: { label: 'Next criterion', run: () => move(1) },
    k: { label: 'Previous criterion', run: () => move(-1) },
    '1 – 9': { label: 'Choose a category, or write the score' },
    i: { label: 'Write the score or text of the criterion', run: () => focusField('score') },
    c: { label: 'Comment on the criterion', run: () => focusField('comment') },
  });
  return (
    <ol className="criteria" ref={list} aria-label="Criteria">
      {items.map((each, index) => (
        <Criterion
          key={each.feedback_key}
          item={each}
          config={configs.get(each.feedback_key)}
          rating={ratings.get(each.feedback_key) ?? emptyRating}
          isActive={index === active}
          onActivate={() => setActive(index)}
          onRate={(change) => onRate(each.feedback_key, change)}
        />
      ))}
    </ol>
  );
}

function Criterion({
  item,
  config,
  rating,
  isActive,
  onActivate,
  onRate,
}: {
  readonly item: RubricItem;
  readonly config: Config | undefined;
  readonly rating: Rating;
  readonly isActive: boolean;
  readonly onActivate: () => void;
  readonly onRate: (change: Partial<Rating>) => void;
}) {
  const { feedback_key: key, description, is_required } = item;
  const name = showInvisible(key);
  return (
    <li className="criterion" aria-current={isActive} onFocus={onActivate}>
      <fieldset>
        <legend>
          <Value text={key} />
          {is_required && <span className="muted"> required</span>}
        </legend>
        {description && <p className="muted long-text">{showInvisible(description)}</p>}
        {config?.type === 'categorical' ? (
          <Categories item={item} config={config} rating={rating} onRate={onRate} />
        ) : config?.type === 'freeform' ? (
          <textarea
            className="input"
            name="score"
            aria-label={`Text of ${name}`}
            rows={2}
            value={rating.text}
            onChange={({ target }) => onRate({ text: target.value })}
          />
        ) : (
          <label className="row">
            <input
              className="input"
              name="score"
              aria-label={`Score of ${name}`}
              inputMode="decimal"
              size={8}
              value={rating.text}
              onChange={({ target }) => onRate({ text: target.value })}
            />
            <span className="muted">{describeBounds(config)}</span>
          </label>
        )}
        <input
          className="input"
          name="comment"
          aria-label={`Comment on ${name}`}
          placeholder="Comment"
          value={rating.comment}
          onChange={({ target }) => onRate({ comment: target.value })}
        />
      </fieldset>
    </li>
  );
}

function Categories({
  item,
  config,
  rating,
  onRate,
}: {
  readonly item: RubricItem;
  readonly config: Config;
  readonly rating: Rating;
  readonly onRate: (change: Partial<Rating>) => void;
}) {
  const { feedback_key: key, value_descriptions, score_descriptions } = item;
  return config.categories?.map(({ value, label }, index) => {
    const description = value_descriptions?.[label ?? ''] ?? score_descriptions?.[String(value)];
    return (
      <label key={value} className="row category">
        <input
          type="radio"
          name={`category ${key}`}
          checked={rating.category === value}
          // A click on the selected category clears the selection.
          onClick={() => onRate({ category: rating.category === value ? undefined : value })}
          onChange={() => undefined}
        />
        {index < 9 && <kbd>{index + 1}</kbd>}
        <Value text={label ?? String(value)} />
        {description && <span className="muted">{showInvisible(description)}</span>}
      </label>
    );
  });
}

function describeBounds({ min, max }: Partial<Config> = {}): string {
  const [hasMin, hasMax] = [min !== null && min !== undefined, max !== null && max !== undefined];
  if (hasMin && hasMax) return `${min} to ${max}`;
  return hasMin ? `at least ${min}` : hasMax ? `at most ${max}` : 'a number';
}

/** Returns the feedback of a rating; undefined if it is empty, an error message if it is invalid. */
export function toFeedback({ feedback_key: key, is_required }: RubricItem, config: Config | undefined, rating: Rating) {
  const text = rating.text.trim();
  const comment = rating.comment.trim() || null;
  const category = config?.categories?.find(({ value }) => value === rating.category);
  const isRated = config?.type === 'categorical' ? category !== undefined : text !== '';
  if (!isRated && is_required) return `${key} is required.`;
  if (!isRated && comment === null) return undefined;
  if (config?.type === 'categorical')
    return { key, score: category?.value ?? null, value: category?.label ?? null, comment };
  if (config?.type === 'freeform' || text === '') return { key, score: null, value: text || null, comment };
  const score = Number(text);
  const isInRange = score >= (config?.min ?? Number.NEGATIVE_INFINITY) && score <= (config?.max ?? Infinity);
  if (!Number.isFinite(score) || !isInRange) return `The score of ${key} must be ${describeNumber(config)}.`;
  return { key, score, value: null, comment };
}

function describeNumber(config: Config | undefined): string {
  const bounds = describeBounds(config);
  return bounds === 'a number' ? bounds : `a number, ${bounds}`;
}

/** Escape leaves a field, so that keys are shortcuts again. */
export function leaveField(event: KeyboardEvent): void {
  if (event.key === 'Escape') (event.target as HTMLElement).blur();
}
