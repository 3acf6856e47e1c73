import logging

logging.getLogger("belfry").setLevel(logging.CRITICAL)  # the tests make calls fail
