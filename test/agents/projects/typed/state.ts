import { Annotation } from '@langchain/langgraph';

/** A step of a plan, which may have substeps. */
export interface Step {
  title: string;
  done?: boolean;
  steps: Step[];
}

export const Plan = Annotation.Root({
  /** Subject of the plan. */
  topic: Annotation<string>,
  kind: Annotation<'trip' | 'meal' | undefined>,
  steps: Annotation<Step[]>({ reducer: (before, more) => before.concat(more), default: () => [] }),
  due: Annotation<Date | null>,
  place: Annotation<[latitude: number, longitude: number]>,
  prices: Annotation<Record<string, number>>,
  urgent: Annotation<boolean>,
  onDone: Annotation<() => void>,
  anything: Annotation,
});

export const Asked = Annotation.Root({ topic: Plan.spec.topic, kind: Plan.spec.kind });
export const Answered = Annotation.Root({ steps: Plan.spec.steps });
export const Settings = Annotation.Root({ tone: Annotation<'dry' | 'warm'>, depth: Annotation<number> });
