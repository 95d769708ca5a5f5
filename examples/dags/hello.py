"""The smallest useful DAG: three tasks that hand values on."""

from stannel.sdk import dag, task


@dag(schedule=None, tags=["example"])
def hello():
    """Say hello, in three steps."""

    @task
    def pick_name(params=None):
        return params.get("name", "world")

    @task
    def greet(name):
        return f"Hello, {name}!"

    @task
    def say(greeting, ds=None):
        print(f"{ds}: {greeting}")

    say(greet(pick_name()))


hello()
