import type { Topic } from '../../../schemas/topics.ts';

/** Names in Kafka. Installations that share a cluster differ by their prefix. */
export interface TopicNames {
  of(topic: Topic): string;
  deadLettersOf(topic: Topic): string;
  subjectOf(topic: Topic): string;
  group(name: string): string;
}

export function topicNames(prefix: string): TopicNames {
  return {
    of: ({ name }) => prefix + name,
    deadLettersOf: ({ name }) => `${prefix}${name}-dead-letters`,
    subjectOf: ({ name }) => `${prefix}${name}-value`,
    group: (name) => prefix + name,
  };
}
