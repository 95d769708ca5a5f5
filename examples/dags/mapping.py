"""As many task instances as there is work: the list is made while the DAG runs."""

from stannel.sdk import dag, task, task_group


@dag(schedule=None, params={"files": 4}, tags=["example"])
def mapping():
    @task
    def list_files(params=None):
        return [f"part-{number}.csv" for number in range(params["files"])]

    @task(map_index_template="{{ task.op_kwargs['name'] }}")
    def count_lines(name, factor):
        return len(name) * factor

    @task_group
    def summary(counts):
        @task
        def total(numbers):
            return sum(numbers)

        @task
        def largest(numbers):
            return max(numbers)

        return [total(counts), largest(counts)]

    @task
    def show(total, largest):
        print(f"{total} lines in all, at most {largest} in one file")

    total, largest = summary(count_lines.partial(factor=10).expand(name=list_files()))
    show(total, largest)


mapping()
